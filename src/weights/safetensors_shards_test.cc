// Folders: one file, or an index and its shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "weights/safetensors.h"
#include "weights/testing/safetensors_writer.h"

namespace pelton::weights {
namespace {

using namespace testing;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

class Shards : public ::testing::Test {
 protected:
  static std::string file(std::vector<std::string> names, std::string_view dtype = "F32") {
    SafetensorsSpec spec;
    for (std::string& name : names)
      spec.tensors.push_back({std::move(name), std::string(dtype), {1}, "data"});
    return write_safetensors(spec);
  }
  void SetUp() override {
    dir_.write(kFirst, file({"a", "b"}));
    dir_.write(kSecond, file({"c"}));
    write_index(R"("a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors",
                   "c":"model-00002-of-00002.safetensors")");
  }
  void write_index(std::string_view map) {
    dir_.write(kIndex,
               R"({"metadata":{"total_size":12,"x":["y",{"weight_map":{"z":1}}]},"weight_map":{)" +
                   std::string(map) + "}}");
  }
  std::string at(const char* name) const { return (dir_.path() / name).string(); }
  std::string refusal() const {
    const auto set = SafetensorsSet::open(dir_.path());
    EXPECT_FALSE(set.ok());
    EXPECT_EQ(set.status().message().find('\n'), std::string::npos);
    return set.status().message();
  }

  pelton::testing::TempDir dir_;
};

TEST_F(Shards, OpenAsOneSet) {
  const auto set = SafetensorsSet::open(dir_.path());
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ((*set)->tensors().size(), 3u);
  EXPECT_EQ((*set)->find("c")->file->path(), at(kSecond));
  EXPECT_EQ((*set)->path(), dir_.path().string());
  EXPECT_GT((*set)->mapped_bytes(), 12u);
}

TEST_F(Shards, MissingShardIsNamed) {
  std::filesystem::remove(at(kSecond));
  EXPECT_THAT(refusal(), HasSubstr(at(kSecond)));
}

TEST_F(Shards, SwappedShardsAreNamed) {
  dir_.write(kFirst, file({"c"}));
  dir_.write(kSecond, file({"a", "b"}));
  EXPECT_EQ(refusal(), at(kFirst) + ": tensor 'c': the index has it in '" + kSecond + "'");
}

TEST_F(Shards, TensorMissingInItsShard) {
  dir_.write(kFirst, file({"a"}));
  EXPECT_EQ(refusal(), at(kFirst) + ": tensor 'b': listed in the index, missing in this shard");
}

TEST_F(Shards, TensorNotInTheIndex) {
  dir_.write(kSecond, file({"c", "d"}));
  EXPECT_EQ(refusal(), at(kSecond) + ": tensor 'd': not in the index");
}

TEST_F(Shards, UnusedTensorsCountAsPresent) {
  dir_.write(kSecond, file({"c"}, "I32"));
  const auto set = SafetensorsSet::open(dir_.path());
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ((*set)->unused().size(), 1u);
}

TEST_F(Shards, ABrokenShardIsNamed) {
  dir_.write(kSecond, "short");
  EXPECT_THAT(refusal(), HasSubstr(at(kSecond) + ": not a safetensors file"));
}

TEST_F(Shards, ShardNamesArePlainFileNames) {
  for (const char* name :
       {"../up.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "nul\\u0000"}) {
    write_index(R"("a":")" + std::string(name) + R"(")");
    EXPECT_THAT(refusal(), HasSubstr("is not a plain file name")) << name;
  }
}

TEST_F(Shards, BrokenIndexes) {
  const auto with_index = [&](std::string_view text) {
    dir_.write(kIndex, text);
    const std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(at(kIndex)));
    return message;
  };
  EXPECT_THAT(with_index("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(with_index(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(with_index("[]"), EndsWith("an array where an object is expected"));
  EXPECT_THAT(with_index("7"), EndsWith("an integer where an object is expected"));
  EXPECT_THAT(with_index("{}"), EndsWith("has no weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map":{}})"), EndsWith("weight_map is empty"));
  EXPECT_THAT(with_index(R"({"weight_map":[]})"),
              EndsWith("weight_map must map strings to strings"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":{}}})"), EndsWith("must map strings to strings"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":1}})"), EndsWith("must map strings to strings"));
  EXPECT_THAT(with_index(R"({"weight_map":"a"})"), EndsWith("must map strings to strings"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"x","a":"x"}})"),
              EndsWith("tensor 'a': appears twice"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"x"},"weight_map":{"a":"x"}})"),
              EndsWith("weight_map appears twice"));
}

TEST_F(Shards, NoIndex) {
  std::filesystem::remove(at(kIndex));
  EXPECT_THAT(refusal(),
              HasSubstr("but neither model.safetensors nor model.safetensors.index.json"));
}

TEST_F(Shards, ASingleFileNeedsNoIndex) {
  std::filesystem::remove(at(kIndex));
  dir_.write("model.safetensors", file({"x"}));
  const auto set = SafetensorsSet::open(dir_.path());
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_NE((*set)->find("x"), nullptr);
  EXPECT_TRUE(SafetensorsSet::open(at("model.safetensors")).ok());
}

TEST_F(Shards, EmptyFoldersAndMissingPaths) {
  const pelton::testing::TempDir empty;
  EXPECT_THAT(SafetensorsSet::open(empty.path()).status().message(),
              HasSubstr("holds neither model.safetensors"));
  EXPECT_EQ(SafetensorsSet::open(empty.path() / "no").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace pelton::weights
