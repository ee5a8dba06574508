#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/quote.h"

namespace pelton {
namespace {

using testing::HasSubstr;

Status refusal(std::string_view text) { return JsonDocument::parse(text).status(); }

TEST(Json, TypedReadsNameTheirPath) {
  const auto document = JsonDocument::parse(
      R"({"a": {"list": [1, "x"], "flag": true}, "none": null, "n": -3, "s": "text"})");
  ASSERT_TRUE(document.ok()) << document.status().to_string();
  const JsonValue root = document->root();
  EXPECT_EQ(*root.integer("n"), -3);
  EXPECT_EQ(*root.string("s"), "text");
  EXPECT_FALSE(root.get("none"));
  EXPECT_FALSE(root.get("absent"));
  EXPECT_TRUE(*root.get("a")->boolean("flag", false));
  EXPECT_EQ(*root.string_or("none", "x"), "x");
  const auto items = root.get("a")->items("list");
  ASSERT_TRUE(items.ok());
  EXPECT_EQ((*items)[1].path(), "a.list[1]");
  EXPECT_EQ((*items)[1].error("wrong").message(), "a.list[1]: wrong");
  EXPECT_THAT(root.get("a")->string("flag").status().message(), HasSubstr("a.flag: "));
  EXPECT_EQ(root.integer("s").status().code(), StatusCode::kDataLoss);
}

TEST(Json, RefusesWhatIsNotOneWellFormedValue) {
  for (std::string_view text : {"", "{", "{} x", "{\"a\": NaN}", "[1e999]", "{\"a\" 1}", "'x'",
                                "[123456789012345678901234567890]", "\"\xff\""}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kDataLoss) << text;
    EXPECT_THAT(refusal(text).message(), HasSubstr("not valid JSON")) << text;
  }
}

TEST(Json, LimitsNesting) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(refusal(nested(kMaxJsonDepth - 1)).ok());
  EXPECT_THAT(refusal(nested(kMaxJsonDepth + 1)).message(), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(nested(100000)).message(), HasSubstr("nested deeper"));
}

TEST(Json, FindsDuplicateKeysAtAnyDepth) {
  const auto duplicates = [](std::string_view text) {
    return JsonDocument::parse(text)->refuse_duplicate_keys();
  };
  EXPECT_TRUE(duplicates(R"({"a": {"b": 1}, "b": [{"b": 1}, {"b": 2}]})").ok());
  EXPECT_THAT(duplicates(R"({"a": 1, "b": 2, "a": 1})").message(), HasSubstr("'a'"));
  EXPECT_THAT(duplicates(R"({"x": [0, {"k\n": 1, "k\u000a": 2}]})").message(),
              HasSubstr(R"('k\x0a')"));
}

TEST(Quote, KeepsOneLine) {
  EXPECT_EQ(quote("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(quote("a\nb\x1b[31m\xff"), R"('a\x0ab\x1b[31m\xff')");
  EXPECT_EQ(quote("abcdef", 3), "'abc...'");
}

}  // namespace
}  // namespace pelton
