#include "base/json_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"

namespace pelton {
namespace {

using testing::HasSubstr;

TEST(JsonTree, ListsOfPairsAreObjects) {
  EXPECT_EQ((Json{{"a", 1}, {"b", {1, 2.5, "x"}}, {"c", nullptr}}).dump(),
            R"({"a":1,"b":[1,2.5,"x"],"c":null})");
  EXPECT_EQ((Json{{"a", 1}, {2, 3}}).dump(), R"([["a",1],[2,3]])");
  EXPECT_EQ(Json::array({{"a", 1}}).dump(), R"([["a",1]])");
  EXPECT_EQ(Json(std::vector<int32_t>{3, -1}).dump(), "[3,-1]");
  EXPECT_EQ(Json::object().dump() + Json::array().dump() + Json().dump(), "{}[]null");
}

TEST(JsonTree, MembersKeepTheirOrder) {
  Json json;
  json["z"] = 1;
  json["a"] = true;
  json["z"] = "again";
  json["list"].push_back(1u);
  json.update({{"a", false}, {"new", 0.5f}});
  EXPECT_EQ(json.dump(), R"({"z":"again","a":false,"list":[1],"new":0.5})");
  EXPECT_EQ(json.size(), 4u);
  EXPECT_TRUE(json.contains("list"));
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_EQ(Json("text").find("a"), nullptr);
}

TEST(JsonTree, TextIsEscapedAndAlwaysUtf8) {
  EXPECT_EQ(Json("\"\\/\b\f\n\r\t\x01\x7f é").dump(), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f é\"");
  EXPECT_EQ(Json("a\xff\xe4\xbd").dump(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(Json(std::string(1, '\0')).dump(), R"("\u0000")");
}

TEST(JsonTree, NumbersReadBackTheSame) {
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(0.1f).dump(), "0.10000000149011612");
  EXPECT_EQ(Json(2.0).dump(), "2.0");
  EXPECT_EQ(Json(-1e300).dump(), "-1e+300");
  EXPECT_EQ(Json(std::numeric_limits<uint64_t>::max()).dump(), "18446744073709551615");
  EXPECT_EQ(Json(std::numeric_limits<int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ((Json{std::nan(""), HUGE_VAL}).dump(), "[null,null]");
}

TEST(JsonTree, Indents) {
  EXPECT_EQ((Json{{"a", {1}}, {"b", Json::array()}}).dump(2),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}");
}

TEST(JsonTree, ParsesWhatItWrites) {
  const std::string text =
      R"({"z":[null,true,-3,18446744073709551615,2.5,"é\n",{}],"a":{"nested":[[]]}})";
  const auto parsed = Json::parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->dump(), text);
  EXPECT_EQ(parsed->at("z")[2].as_integer(), -3);
  EXPECT_EQ(parsed->at("z")[4].as_double(), 2.5);
  EXPECT_EQ(*Json::parse(parsed->dump(1)), *parsed);
}

TEST(JsonTree, RefusesWhatIsNotOneValue) {
  EXPECT_EQ(Json::parse("{\"a\":1} x").status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Json::parse(R"({"a":1,"a":2})").status().message(), HasSubstr("twice"));
  EXPECT_FALSE(Json::parse(std::string(100000, '[')).ok());
}

TEST(JsonTree, WrongUseIsAnInternalError) {
  EXPECT_THROW(Json(1).as_string(), InternalError);
  EXPECT_THROW(Json("x").push_back(1), InternalError);
  EXPECT_THROW(Json::object().at("a"), InternalError);
  EXPECT_THROW(Json(std::numeric_limits<uint64_t>::max()).as_integer(), InternalError);
}

}  // namespace
}  // namespace pelton
