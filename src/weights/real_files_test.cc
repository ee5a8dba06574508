// Published model files open, keep the readers' promises and cost what a reader may cost.
#include <gtest/gtest.h>

#include "tests/support/allocation_hook.h"
#include "tests/support/models.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

struct RealGguf {
  const char* name;
  const char* architecture;
  size_t tensors;
  size_t vocabulary;
};

class RealGgufs : public ::testing::TestWithParam<RealGguf> {};

TEST_P(RealGgufs, Open) {
  const auto path = pelton::testing::find_model(GetParam().name);
  if (!path) GTEST_SKIP() << "no " << GetParam().name << " in PELTON_MODELS";
  const pelton::testing::AllocationCounter memory;
  const auto file = GgufFile::open(*path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(**(*file)->get_string("general.architecture"), GetParam().architecture);
  EXPECT_EQ((*file)->tensors().size(), GetParam().tensors);
  const auto* tokens = (*file)->get_strings("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->size(), GetParam().vocabulary);
  ASSERT_NE((*file)->tensors()[0].file, nullptr);
  EXPECT_EQ(testing::broken_promise(**file, (*file)->tensors()[0].file->bytes()), "");
  // Two arrays of strings and two of numbers a token; weights stay in the mapping.
  EXPECT_LT(memory.peak_bytes(), static_cast<int64_t>(GetParam().vocabulary * 160 + (1 << 20)));
  EXPECT_LT(memory.calls(), GetParam().vocabulary);
}

INSTANTIATE_TEST_SUITE_P(
    All, RealGgufs,
    ::testing::Values(RealGguf{"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 272, 49152},
                      RealGguf{"gemma-3-270m-Q4_K_M.gguf", "gemma3", 236, 262144},
                      RealGguf{"qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", "qwen2", 291, 151936},
                      RealGguf{"qwen2.5-coder-1.5b-instruct-Q4_K_M.gguf", "qwen2", 339, 151936}));

class RealFolders : public ::testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(RealFolders, Open) {
  const auto [name, tensors] = GetParam();
  const auto path = pelton::testing::find_model(name);
  if (!path) GTEST_SKIP() << "no " << name << " in PELTON_MODELS";
  const auto set = SafetensorsSet::open(*path);
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ((*set)->tensors().size(), tensors);
  EXPECT_EQ((*set)->unused().size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, RealFolders,
                         ::testing::Values(std::pair{"runnel-2m", size_t{38}},
                                           std::pair{"runnel-15m", size_t{74}},
                                           std::pair{"runnel-moe-13m", size_t{188}}));

}  // namespace
}  // namespace pelton::weights
