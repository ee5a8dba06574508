#include "server/http_head.h"

#include <gtest/gtest.h>

#include <string>

namespace pelton::server {
namespace {

int status_of(const std::string& text) { return parse_head(text, {}).status; }

TEST(HttpHead, ReadsAPlainRequest) {
  const ParsedHead parsed = parse_head(
      "POST /v1/completions?a=b HTTP/1.1\r\nHost: localhost:8000\r\nContent-Length: 12\r\n"
      "X-Thing:  two words \t\r\n\r\n",
      {});
  ASSERT_EQ(parsed.status, 0) << parsed.reason;
  EXPECT_EQ(parsed.head.method, "POST");
  EXPECT_EQ(parsed.head.path, "/v1/completions");
  EXPECT_EQ(parsed.head.query, "a=b");
  EXPECT_EQ(parsed.head.content_length, 12u);
  EXPECT_EQ(parsed.head.header("x-thing"), "two words");
  EXPECT_TRUE(parsed.head.keep_alive);
  EXPECT_TRUE(parsed.head.has_body());
}

TEST(HttpHead, KeepsConnectionsByVersionAndWish) {
  EXPECT_FALSE(parse_head("GET / HTTP/1.0\r\n\r\n", {}).head.keep_alive);
  EXPECT_TRUE(parse_head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", {}).head.keep_alive);
  EXPECT_FALSE(
      parse_head("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", {}).head.keep_alive);
}

TEST(HttpHead, RefusesWhatTwoReadersMayUnderstandDifferently) {
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::string host = "Host: a\r\n";
  const std::string cases[] = {
      "GET / HTTP/1.1\nHost: a\n\n",
      get + "\r\n",                                                   // no Host
      get + host + host + "\r\n",                                     // two of them
      get + host + "A: b\r\n c\r\n\r\n",                              // folded
      get + host + "A : b\r\n\r\n",                                   // blank before the colon
      get + host + "A\r\n\r\n",                                       // no colon
      get + host + ": b\r\n\r\n",                                     // no name
      get + host + std::string("A: b\0c\r\n\r\n", 11),                // NUL
      get + host + "A: b\rc\r\n\r\n",                                 // lone CR
      get + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",  // twice
      get + host + "Content-Length: +1\r\n\r\n",                      // sign
      get + host + "Content-Length: 1, 1\r\n\r\n",                    // list
      get + host + "Content-Length: 99999999999999999999\r\n\r\n",    // beyond 64 bits
      get + host + "Content-Length:\r\n\r\n",                         // empty
      get + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      get + host + "Transfer-Encoding: gzip, chunked\r\n\r\n",
      get + host + "Transfer-Encoding: xchunked\r\n\r\n",
      get + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
      "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
      get + host + "Expect: magic\r\n\r\n",
      "GET  HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET / /x HTTP/1.1\r\nHost: a\r\n\r\n",
      "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
      "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET / FTP/1.1\r\nHost: a\r\n\r\n",
  };
  for (const std::string& text : cases) EXPECT_EQ(status_of(text), 400) << text;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
}

TEST(HttpHead, LimitsAreExact) {
  HttpLimits limits;
  limits.target_bytes = 10;
  limits.header_count = 3;
  limits.header_bytes = 80;
  const auto status = [&](const std::string& text) { return parse_head(text, limits).status; };
  EXPECT_EQ(status("GET /" + std::string(9, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
  EXPECT_EQ(status("GET /" + std::string(10, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nb: c\r\nd: e\r\n\r\n"), 0);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nb: c\r\nd: e\r\nf: g\r\n\r\n"), 431);
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\nb: ";
  const std::string fits = head + std::string(80 - head.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(status(fits), 0);
  EXPECT_EQ(status(head + std::string(81 - head.size() - 4, 'x') + "\r\n\r\n"), 431);
}

// Every prefix of a good head is refused, never misread.
TEST(HttpHead, RefusesEveryPrefix) {
  const std::string whole = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
  ASSERT_EQ(status_of(whole), 0);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(status_of(whole.substr(0, size)), 0) << size;
}

}  // namespace
}  // namespace pelton::server
