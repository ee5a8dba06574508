// Split GGUF files: all shards or a clear refusal that names one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "weights/gguf.h"
#include "weights/testing/gguf_writer.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class SplitGguf : public ::testing::Test {
 protected:
  static GgufSpec shard(uint16_t index, uint16_t count, int32_t tensors) {
    GgufSpec spec;
    if (index == 0) spec.keys = {{"general.architecture", encode_string("llama")}};
    spec.keys.emplace_back("split.no", encode(GgufType::kU16, index));
    spec.keys.emplace_back("split.count", encode(GgufType::kU16, count));
    spec.keys.emplace_back("split.tensors.count", encode(GgufType::kI32, tensors));
    const auto letter = static_cast<char>('a' + index);
    spec.tensors = {{std::string("t.") + letter, 0, {8}, std::string(32, letter)}};
    return spec;
  }
  static std::string name(int number, int count = 3) {
    return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
  }
  void SetUp() override {
    for (uint16_t i = 0; i < 3; ++i) dir_.write(name(i + 1), write_gguf(shard(i, 3, 3)));
  }
  std::string path(int number) const { return (dir_.path() / name(number)).string(); }
  std::string refusal(int number = 1) const {
    const auto file = GgufFile::open(path(number));
    EXPECT_FALSE(file.ok());
    return file.status().message();
  }

  pelton::testing::TempDir dir_;
};

TEST_F(SplitGguf, OpensAllShards) {
  const auto file = GgufFile::open(path(1));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ((*file)->tensors().size(), 3u);
  for (const TensorInfo& tensor : (*file)->tensors()) {
    ASSERT_NE(tensor.file, nullptr);
    EXPECT_EQ(static_cast<char>(tensor.data[0]), tensor.name.back());
  }
  EXPECT_EQ((*file)->find("t.c")->file->path(), path(3));
  EXPECT_EQ(**(*file)->get_string("general.architecture"), "llama");
  EXPECT_GT((*file)->mapped_bytes(), 3u * 32);
}

TEST_F(SplitGguf, OpensByTheFirstShardOnly) {
  EXPECT_EQ(refusal(2), path(2) + ": is shard 2 of 3; open the one ending in -00001-of-00003.gguf");
}

TEST_F(SplitGguf, MissingShardIsNamed) {
  std::filesystem::remove(path(2));
  const std::string message = refusal();
  EXPECT_THAT(message, HasSubstr("shard 2 of 3"));
  EXPECT_THAT(message, HasSubstr(path(2)));
}

TEST_F(SplitGguf, RenamedFirstShardIsNamed) {
  std::filesystem::rename(path(1), dir_.path() / "model.gguf");
  const auto file = GgufFile::open(dir_.path() / "model.gguf");
  EXPECT_THAT(file.status().message(), HasSubstr("its name must end in -00001-of-00003.gguf"));
}

TEST_F(SplitGguf, SwappedShardsAreNamed) {
  dir_.write(name(2), write_gguf(shard(2, 3, 3)));
  EXPECT_EQ(refusal(), path(2) + ": holds shard 3 of 3; its name says 2 of 3");
}

TEST_F(SplitGguf, ForeignShardsAreNamed) {
  dir_.write(name(3), write_gguf(shard(2, 4, 3)));
  EXPECT_EQ(refusal(), path(3) + ": holds shard 3 of 4; its name says 3 of 3");
  dir_.write(name(3), write_gguf(shard(2, 3, 9)));
  EXPECT_EQ(refusal(), path(3) + ": shard of another model");
  GgufSpec other = shard(2, 3, 3);
  other.keys.emplace_back("general.architecture", encode_string("qwen2"));
  dir_.write(name(3), write_gguf(other));
  EXPECT_EQ(refusal(), path(3) + ": shard of another model");
  GgufSpec whole = shard(2, 3, 3);
  whole.keys.clear();
  dir_.write(name(3), write_gguf(whole));
  EXPECT_THAT(refusal(), HasSubstr(path(3) + ": holds shard 1 of 0"));
}

TEST_F(SplitGguf, TensorsAreCounted) {
  GgufSpec more = shard(2, 3, 3);
  more.tensors.push_back({"extra", 0, {8}, std::string(32, 'x')});
  dir_.write(name(3), write_gguf(more));
  EXPECT_THAT(refusal(), HasSubstr("the shards hold 4 tensors; 'split.tensors.count' says 3"));
}

TEST_F(SplitGguf, TensorsOfOneNameAreRefused) {
  GgufSpec twin = shard(2, 3, 3);
  twin.tensors[0].name = "t.a";
  dir_.write(name(3), write_gguf(twin));
  EXPECT_EQ(refusal(), path(3) + ": tensor 't.a': appears twice");
}

TEST_F(SplitGguf, ABrokenShardIsNamed) {
  dir_.write(name(2), write_gguf(shard(1, 3, 3)).substr(0, 100));
  EXPECT_THAT(refusal(), HasSubstr(path(2) + ": "));
}

TEST_F(SplitGguf, RawConcatenationIsRefused) {
  dir_.write("whole.gguf", write_gguf(shard(0, 3, 3)) + write_gguf(shard(1, 3, 3)));
  const auto file = GgufFile::open(dir_.path() / "whole.gguf");
  EXPECT_THAT(file.status().message(), HasSubstr("several GGUF files were concatenated"));
}

TEST_F(SplitGguf, CountsOfOneAreWholeFiles) {
  const auto whole = GgufFile::open(dir_.write("whole.gguf", write_gguf(shard(0, 1, 1))));
  EXPECT_TRUE(whole.ok()) << whole.status().to_string();
}

TEST_F(SplitGguf, FoldersAndMissingFilesAreRefused) {
  EXPECT_FALSE(GgufFile::open(dir_.path()).ok());
  EXPECT_EQ(GgufFile::open(dir_.path() / "no.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(GgufFile::open(dir_.write("empty.gguf", "")).ok());
}

// A file cut while it is mapped reads as zeros: no signal, and whoever reads can know.
TEST_F(SplitGguf, CutWhileMappedDoesNotKill) {
  GgufSpec spec = shard(0, 1, 1);
  spec.tensors[0].dims = {1 << 16};
  spec.tensors[0].data.assign(size_t{4} << 16, 'x');
  const auto whole = dir_.write("cut.gguf", write_gguf(spec));
  const auto file = GgufFile::open(whole);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(whole, 4096);
  EXPECT_EQ((*file)->find("t.a")->data.back(), std::byte{0});
  EXPECT_TRUE(truncated_while_mapped());
}

}  // namespace
}  // namespace pelton::weights
