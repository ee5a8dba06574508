#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "weights/testing/gguf_writer.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::unique_ptr<GgufFile> parse(const std::string& bytes) {
  auto file = GgufFile::parse(as_bytes(bytes), "t.gguf");
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return file.ok() ? *std::move(file) : nullptr;
}

class SmallGguf : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(file_, nullptr); }
  std::string bytes_ = write_gguf(small_gguf());
  std::unique_ptr<GgufFile> file_ = parse(bytes_);
};

TEST_F(SmallGguf, KeepsItsPromises) {
  EXPECT_EQ(broken_promise(*file_, as_bytes(bytes_)), "");
  EXPECT_EQ(file_->path(), "t.gguf");
  EXPECT_EQ(file_->version(), 3u);
  EXPECT_EQ(file_->mapped_bytes(), 0u);
  EXPECT_EQ(file_->tensors().size(), weight_formats().size());
}

TEST_F(SmallGguf, WidensNumbers) {
  EXPECT_EQ(**file_->get_int("test.u8"), 200);
  EXPECT_EQ(**file_->get_int("test.i8"), -100);
  EXPECT_EQ(**file_->get_int("test.u16"), 60000);
  EXPECT_EQ(**file_->get_int("test.i16"), -30000);
  EXPECT_EQ(**file_->get_int("test.i32"), -2000000000);
  EXPECT_EQ(**file_->get_int("test.i64"), INT64_MIN);
  EXPECT_EQ(**file_->get_float("test.f32"), 0.5);
  EXPECT_EQ(**file_->get_float("test.f64"), -0.25);
  EXPECT_EQ(**file_->get_float("test.u8"), 200.0);
  EXPECT_EQ(**file_->get_float("test.i8"), -100.0);
  EXPECT_EQ(**file_->get_bool("test.bool"), true);
  EXPECT_EQ(**file_->get_string("general.architecture"), "llama");
}

TEST_F(SmallGguf, KeepsStringsAsBytes) {
  ASSERT_NE(file_->get_strings("test.strings"), nullptr);
  EXPECT_THAT(*file_->get_strings("test.strings"), ElementsAre("a", "", std::string("\xFF\0z", 3)));
  EXPECT_THAT(*file_->get_ints("test.ints"), ElementsAre(-5, 7));
  EXPECT_THAT(*file_->get_ints("test.bools"), ElementsAre(1, 0));
  EXPECT_THAT(*file_->get_floats("test.floats"), ElementsAre(1.5));
  EXPECT_THAT(*file_->get_strings("test.empty"), ElementsAre());
}

TEST_F(SmallGguf, AbsentKeysAreNotErrors) {
  EXPECT_EQ(*file_->get_int("no"), std::nullopt);
  EXPECT_EQ(*file_->get_float("no"), std::nullopt);
  EXPECT_EQ(*file_->get_bool("no"), std::nullopt);
  EXPECT_EQ(*file_->get_string("no"), std::nullopt);
  EXPECT_EQ(file_->get_strings("no"), nullptr);
  EXPECT_EQ(file_->get_ints("test.strings"), nullptr);
}

TEST_F(SmallGguf, WrongTypesNameKeyAndType) {
  EXPECT_EQ(file_->get_int("test.f32").status().message(),
            "t.gguf: key 'test.f32': float where an integer is expected");
  EXPECT_EQ(file_->get_int("test.u64").status().message(),
            "t.gguf: key 'test.u64': 18446744073709551615 does not fit 63 bits");
  EXPECT_EQ(file_->get_bool("test.u8").status().message(),
            "t.gguf: key 'test.u8': unsigned integer where a boolean is expected");
  EXPECT_EQ(file_->get_string("test.strings").status().message(),
            "t.gguf: key 'test.strings': string array where a string is expected");
  EXPECT_EQ(file_->get_float("test.bool").status().message(),
            "t.gguf: key 'test.bool': boolean where a number is expected");
}

TEST_F(SmallGguf, ShapesAreOutermostFirst) {
  const TensorInfo* tensor = file_->find("t.Q4_K");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(3, 256));
  EXPECT_EQ(tensor->format, WeightFormat::kQ4_K);
  EXPECT_EQ(tensor->data.size(), 3u * 144);
  EXPECT_EQ(tensor->elements(), 768);
  EXPECT_EQ(tensor->file, nullptr);
}

TEST_F(SmallGguf, RequireSaysWhatIsMissing) {
  EXPECT_EQ(*file_->require("t.F32"), file_->find("t.F32"));
  const auto missing = file_->require("blk.0.attn_q.weight");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(), "t.gguf: tensor 'blk.0.attn_q.weight': missing");
}

TEST_F(SmallGguf, WrittenAgainReloadsEqual) {
  const std::string again = write_gguf(spec_of(*file_));
  const auto reloaded = parse(again);
  ASSERT_NE(reloaded, nullptr);
  EXPECT_EQ(reloaded->metadata(), file_->metadata());
  ASSERT_EQ(reloaded->tensors().size(), file_->tensors().size());
  for (size_t i = 0; i < file_->tensors().size(); ++i) {
    const TensorInfo& a = file_->tensors()[i];
    const TensorInfo& b = reloaded->tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.format, b.format);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_TRUE(std::ranges::equal(a.data, b.data)) << a.name;
  }
}

TEST(Gguf, ReadsVersion2) {
  GgufSpec spec = small_gguf();
  spec.version = 2;
  const std::string bytes = write_gguf(spec);
  const auto file = parse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->version(), 2u);
  EXPECT_NE(file->find("t.MXFP4"), nullptr);
}

TEST(Gguf, ReadsFilesWithoutTensorsOrKeys) {
  GgufSpec vocabulary = small_gguf();
  vocabulary.tensors.clear();
  EXPECT_EQ(parse(write_gguf(vocabulary))->tensors().size(), 0u);
  EXPECT_EQ(parse(write_gguf(GgufSpec()))->metadata().size(), 0u);
}

TEST(Gguf, HonoursAlignment) {
  for (uint32_t alignment : {8u, 64u, 4096u}) {
    GgufSpec spec = small_gguf();
    spec.keys[1].second = encode_u32(alignment);
    spec.alignment = alignment;
    const std::string bytes = write_gguf(spec);
    const auto file = parse(bytes);
    ASSERT_NE(file, nullptr);
    for (const TensorInfo& tensor : file->tensors()) {
      const auto offset = reinterpret_cast<const char*>(tensor.data.data()) - bytes.data();
      EXPECT_EQ(offset % alignment, 0u);
    }
  }
}

TEST(Gguf, LastTensorNeedsNoPadding) {
  GgufSpec spec = small_gguf();
  spec.pad_last = false;
  const std::string bytes = write_gguf(spec);
  const auto file = parse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(broken_promise(*file, as_bytes(bytes)), "");
}

TEST(Gguf, ScalarsHoldOneElement) {
  GgufSpec spec;
  spec.tensors = {{"s", 0, {}, number_bytes(2.0f)}};
  const std::string bytes = write_gguf(spec);
  const auto file = parse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(file->find("s")->shape, ElementsAre());
  EXPECT_EQ(file->find("s")->elements(), 1);
}

// Tensor data may lie in another order than the descriptions.
TEST(Gguf, DataOrderIsFree) {
  GgufSpec spec;
  spec.tensors = {{"a", 0, {8}, std::string(32, 'a')}, {"b", 0, {8}, std::string(32, 'b')}};
  spec.tensors[0].offset = 32;
  spec.tensors[1].offset = 0;
  const std::string bytes = write_gguf(spec);
  const auto file = parse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->find("b")->data.data(), as_bytes(bytes).data() + gguf_data_start(spec));
}

}  // namespace
}  // namespace pelton::weights
