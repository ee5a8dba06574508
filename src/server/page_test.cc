#include "server/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/source_root.h"

namespace pelton::server {
namespace {

std::string source(const std::string& name) {
  std::ifstream in(pelton::source_root().string() + "/src/server/page/" + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Page, HoldsTheFilesAsTheyAre) {
  ASSERT_GE(page_files().size(), 3u);
  std::set<std::string_view> paths;
  for (const PageFile& file : page_files()) {
    EXPECT_TRUE(paths.insert(file.path).second) << file.path;
    const std::string name = file.path == "/" ? "index.html" : std::string(file.path.substr(6));
    EXPECT_FALSE(file.content.empty()) << name;
    EXPECT_EQ(file.content, source(name)) << name;
  }
  EXPECT_EQ(paths.count("/"), 1u);
}

TEST(Page, TypesFollowEndings) {
  for (const PageFile& file : page_files()) {
    const std::string_view ending = file.path.substr(file.path.rfind('.') + 1);
    const std::string_view wanted = file.path == "/"  ? "text/html; charset=utf-8"
                                    : ending == "css" ? "text/css; charset=utf-8"
                                    : ending == "js"  ? "text/javascript; charset=utf-8"
                                    : ending == "svg" ? "image/svg+xml"
                                                      : "";
    EXPECT_EQ(file.type, wanted) << file.path;
  }
}

TEST(Page, EveryFileComesWithThePolicy) {
  for (const PageFile& file : page_files()) {
    const auto response = page_response(file.path);
    ASSERT_TRUE(response) << file.path;
    bool policy = false;
    for (const HttpHeader& header : response->headers) {
      if (header.name != "Content-Security-Policy") continue;
      policy = true;
      EXPECT_EQ(header.value.find("unsafe"), std::string::npos);
      EXPECT_EQ(header.value.find("default-src 'none'"), 0u);
    }
    EXPECT_TRUE(policy) << file.path;
  }
}

TEST(Page, NothingElseIsAFile) {
  for (const char* path : {"", "/page", "/page/", "/page/index.html", "/page/../fields.cc",
                           "/page/%2e%2e/fields.cc", "//", "/index.html"})
    EXPECT_FALSE(page_response(path)) << path;
}

// What the policy would block in a browser, and what would reach beyond this server.
TEST(Page, NothingInlineAndNothingFromElsewhere) {
  for (const PageFile& file : page_files()) {
    for (const char* word : {" style=", " onclick=", " onload=", "javascript:", "innerHTML",
                             "insertAdjacentHTML", "document.write", "eval(", "new Function"})
      EXPECT_EQ(file.content.find(word), std::string_view::npos) << file.path << ": " << word;
    for (size_t at = file.content.find("://"); at != std::string_view::npos;
         at = file.content.find("://", at + 1)) {
      const std::string_view around = file.content.substr(at < 16 ? 0 : at - 16, 40);
      EXPECT_NE(around.find("www.w3.org/2000/svg"), std::string_view::npos) << file.path << around;
    }
  }
}

}  // namespace
}  // namespace pelton::server
