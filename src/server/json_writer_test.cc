#include "server/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.h"
#include "server/access.h"
#include "server/api_error.h"

namespace pelton::server {
namespace {

TEST(JsonWriter, EscapesWhateverTheBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    std::string json;
    append_json_string(bytes, &json);
    EXPECT_EQ(json.find_first_of("\r\n"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), replace_invalid_utf8(bytes));
  }
}

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object().field("a", int64_t{1}).key("b").begin_array().integer(1).string("x");
  json.begin_object().end_object().begin_array().end_array().null().end_array();
  json.key("c").number(0.5).key("d").boolean(false).key("e").number(std::nan("")).end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[1,"x",{},[],null],"c":0.5,"d":false,"e":null})");
}

TEST(JsonWriter, EventsAreOneBlock) {
  std::string out;
  append_sse("", "{}", &out);
  append_sse("ping", "1", &out);
  EXPECT_EQ(out, "data: {}\n\nevent: ping\ndata: 1\n\n");
}

TEST(ApiError, KeepsInsidesInside) {
  const ApiError error = from_status(data_loss("/secret/path/model.gguf: damaged"), "prompt");
  EXPECT_EQ(error.status, 500);
  EXPECT_EQ(error.json().find("secret"), std::string::npos);
  EXPECT_EQ(from_status(invalid_argument("top_p must be in (0, 1]"), "x").param, "top_p");
  EXPECT_EQ(from_status(invalid_argument("prompt: 9 tokens"), "x").param, "prompt");
  EXPECT_EQ(from_status(invalid_argument("something else"), "x").param, "x");
  EXPECT_EQ(overloaded(429, "full", 3).response().headers.at(0).value, "3");
}

TEST(KeyRing, FindsKeysAndWeights) {
  const auto ring = KeyRing::parse("# comment\n\nfirst-key-1234\nsecond-key-12  2.5\r\n");
  ASSERT_TRUE(ring.ok()) << ring.status().to_string();
  EXPECT_EQ(ring->find("first-key-1234"), 1);
  EXPECT_EQ(ring->find("second-key-12"), 2);
  EXPECT_EQ(ring->weights().at(1), 2.5);
  for (const char* wrong : {"", "first-key-123", "first-key-12345", "FIRST-KEY-1234", "# comment"})
    EXPECT_FALSE(ring->find(wrong)) << wrong;
}

TEST(KeyRing, RefusesBrokenFiles) {
  for (const char* text : {"", "# none\n", "short\n", "long-enough x\n", "long-enough 0\n",
                           "long-enough -1\n", "long-enough inf\n", "long-enough\nlong-enough\n"}) {
    const auto ring = KeyRing::parse(text);
    ASSERT_FALSE(ring.ok()) << text;
    EXPECT_EQ(ring.status().message().find("long-enough"), std::string::npos);
  }
}

TEST(Access, KeysComeInTwoHeaders) {
  HttpHead head;
  EXPECT_EQ(presented_key(head), "");
  head.headers = {{"authorization", "bEARER  k"}};
  EXPECT_EQ(presented_key(head), " k");
  head.headers = {{"authorization", "Basic k"}, {"x-api-key", "other"}};
  EXPECT_EQ(presented_key(head), "other");
}

TEST(Access, LoopbackNames) {
  for (const char* good : {"localhost", "localhost:80", "127.0.0.1:8000", "127.1.2.3", "[::1]:80"})
    EXPECT_TRUE(is_loopback_host(good)) << good;
  for (const char* bad : {"", "example.org", "127.evil.org", "localhost.evil.org:80", "10.0.0.1"})
    EXPECT_FALSE(is_loopback_host(bad)) << bad;
}

}  // namespace
}  // namespace pelton::server
