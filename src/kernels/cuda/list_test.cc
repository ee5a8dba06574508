#include "kernels/cuda/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pelton::kernels::cuda {
namespace {

constexpr WeightFormat kStored[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16};

TEST(CudaListTest, EveryProductOfAStoredFormatHasAKernel) {
  const device::Caps caps = device::h200_caps();
  for (const WeightFormat format : kStored) {
    for (const int64_t m : {1, 3, 64, 8192}) {
      for (const int64_t n : {1, 37, 4096, 128256}) {
        for (const int64_t k : {1, 33, 576, 14336}) {
          const MatmulProblem p{.m = m, .n = n, .k = k, .format = format};
          const MatmulEntry* entry = choose(device_kernels().matmul, caps, p);
          ASSERT_NE(entry, nullptr) << to_string(p);
          EXPECT_GT(entry->cost(caps, p), 0) << to_string(p);
        }
      }
    }
  }
  const MatmulProblem packed{.m = 1, .n = 16, .k = 256, .format = WeightFormat::kQ4_K};
  EXPECT_EQ(choose(device_kernels().matmul, caps, packed), nullptr);
}

TEST(CudaListTest, EveryHeadSizeAndPageFormatHasAnAttentionKernel) {
  const device::Caps caps = device::h200_caps();
  for (int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const KvFormat format :
         {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16, KvFormat::kFp8, KvFormat::kInt8}) {
      const AttentionProblem p{.rows = 5,
                               .num_sequences = 2,
                               .max_rows = 4,
                               .max_context = 100,
                               .heads = 9,
                               .kv_heads = 3,
                               .head_dim = head_dim,
                               .block_tokens = 32,
                               .format = format,
                               .window = true,
                               .soft_cap = true,
                               .sinks = true,
                               .alibi = true};
      EXPECT_NE(choose(device_kernels().attention, caps, p), nullptr) << to_string(p);
    }
  }
}

std::string matmul_choice(const MatmulProblem& p) {
  const MatmulEntry* entry = choose(device_kernels().matmul, device::h200_caps(), p);
  return entry == nullptr ? "" : entry->name;
}
std::string attention_choice(const AttentionProblem& p) {
  const AttentionEntry* entry = choose(device_kernels().attention, device::h200_caps(), p);
  return entry == nullptr ? "" : entry->name;
}

TEST(CudaListTest, Bf16ProductsGoByTheirRows) {
  MatmulProblem p{.m = 1,
                  .n = 4096,
                  .k = 4096,
                  .format = WeightFormat::kBF16,
                  .accumulate = true,
                  .x_type = DType::kBF16};
  for (const int64_t m : {1, 8}) {
    p.m = m;
    EXPECT_EQ(matmul_choice(p), "small_m") << m;
  }
  p.m = 64;
  EXPECT_EQ(matmul_choice(p), "wide_m");
  for (const int64_t m : {512, 8192}) {
    p.m = m;
    EXPECT_EQ(matmul_choice(p), "gemm") << m;
    p.invariant = true;
    EXPECT_EQ(matmul_choice(p), "small_m") << m;
    p.invariant = false;
  }
  p.accumulate = false;
  p.x_type = DType::kF32;
  EXPECT_EQ(matmul_choice(p), "plain") << "f32 rows keep what --activations f32 asks for";
  p.x_type = p.out_type = DType::kBF16;
  p.gated = true;
  EXPECT_EQ(matmul_choice(p), "gemm");
  p.activation = DeviceActivation::kGeluTanh;
  EXPECT_EQ(matmul_choice(p), "") << "composed of a product and an activation";
}

TEST(CudaListTest, WeightsQuantizedAtLoadHaveAKernelForAnyNumberOfRows) {
  for (const WeightLayout layout :
       {WeightLayout::kFp8Channels, WeightLayout::kInt8Channels, WeightLayout::kInt4Groups}) {
    for (const int64_t m : {1, 8, 32, 33, 64, 128, 256, 4096}) {
      MatmulProblem p{.m = m,
                      .n = 4096,
                      .k = 1536,
                      .format = WeightFormat::kBF16,
                      .layout = layout,
                      .x_type = DType::kBF16,
                      .out_type = DType::kBF16};
      const std::string choice = matmul_choice(p);
      if (m <= 8) {
        EXPECT_EQ(choice, "small_m") << to_string(p);
      } else if (m == 64 && layout == WeightLayout::kInt4Groups) {
        EXPECT_EQ(choice, "wide_m") << to_string(p);
      }
      EXPECT_NE(choice, "plain") << to_string(p);
      EXPECT_NE(choice, "") << to_string(p);
      p.invariant = true;
      EXPECT_EQ(matmul_choice(p), "small_m") << to_string(p);
    }
  }
  MatmulProblem p{.m = 4096,
                  .n = 4096,
                  .k = 1536,
                  .format = WeightFormat::kBF16,
                  .layout = WeightLayout::kFp8Channels,
                  .x_type = DType::kBF16,
                  .out_type = DType::kBF16};
  EXPECT_EQ(matmul_choice(p), "gemm_fp8");
  p.library = true;
  EXPECT_EQ(matmul_choice(p), "cublaslt_fp8");
  p.gated = true;
  EXPECT_EQ(matmul_choice(p), "gemm_fp8");
  p.layout = WeightLayout::kInt8Channels;
  EXPECT_EQ(matmul_choice(p), "gemm_int8");
  p = {.m = 256,
       .n = 4096,
       .k = 14336,
       .format = WeightFormat::kBF16,
       .layout = WeightLayout::kFp8Channels,
       .accumulate = true,
       .library = true,
       .x_type = DType::kBF16,
       .out_type = DType::kF32};
  EXPECT_EQ(matmul_choice(p), "gemm_fp8") << "two blocks share K";
  p.k = 4096;
  EXPECT_EQ(matmul_choice(p), "cublaslt_fp8");
}

// From measured times on an H200: the library where few rows leave most of the chip without a tile
// of gemm; the fused gated product where it saves the activation's memory.
TEST(CudaListTest, TheLibraryServesProductsThatItComputesSooner) {
  MatmulProblem p{.format = WeightFormat::kBF16,
                  .library = true,
                  .x_type = DType::kBF16,
                  .out_type = DType::kBF16};
  constexpr int64_t kProducts[][2] = {{6144, 4096}, {4096, 4096}, {4096, 14336}};
  for (const auto& product : kProducts) {
    p.n = product[0];
    p.k = product[1];
    p.m = 32;
    EXPECT_EQ(matmul_choice(p), p.n > 4096 ? "wide_m" : "small_m") << to_string(p);
    for (const int64_t m : {96, 128, 256}) {
      p.m = m;
      EXPECT_EQ(matmul_choice(p), "cublaslt") << to_string(p);
      MatmulProblem other = p;
      other.library = false;
      EXPECT_NE(matmul_choice(other), "cublaslt") << to_string(other);
      other = p;
      other.bias = true;
      EXPECT_NE(matmul_choice(other), "cublaslt") << "its bias would be bf16";
      other = p;
      other.invariant = true;
      EXPECT_EQ(matmul_choice(other), "small_m") << "its algorithms follow m";
      other = p;
      other.x_type = DType::kF32;
      EXPECT_EQ(matmul_choice(other), "plain");
    }
  }
  p = {.m = 2048,
       .n = 28672,
       .k = 4096,
       .format = WeightFormat::kBF16,
       .library = true,
       .x_type = DType::kBF16,
       .out_type = DType::kBF16,
       .gated = true};
  EXPECT_EQ(matmul_choice(p), "gemm");
}

// The products of Llama-3.1-8B and Llama-3.2-1B, as measured on an H200.
TEST(CudaListTest, ProductsOfKnownModelsGoToTheKernelThatIsFastest) {
  struct Shape {
    int64_t n;
    int64_t k;
    bool gated = false;
    bool accumulate = false;
  };
  const Shape shapes[] = {{6144, 4096},
                          {4096, 4096, false, true},
                          {28672, 4096, true},
                          {4096, 14336, false, true},
                          {128256, 4096},
                          {3072, 2048},
                          {2048, 2048, false, true},
                          {16384, 2048, true},
                          {2048, 8192, false, true},
                          {128256, 2048}};
  for (const Shape& s : shapes) {
    for (const int64_t m : {1, 2, 8, 32, 64, 128, 256}) {
      const MatmulProblem p{.m = m,
                            .n = s.n,
                            .k = s.k,
                            .format = WeightFormat::kBF16,
                            .accumulate = s.accumulate,
                            .x_type = DType::kBF16,
                            .out_type = s.accumulate ? DType::kF32 : DType::kBF16,
                            .gated = s.gated};
      if (m <= 8) {
        EXPECT_EQ(matmul_choice(p), "small_m") << to_string(p);
      } else if (m == 32 && s.n > 6000) {
        EXPECT_EQ(matmul_choice(p), "wide_m") << to_string(p);
      } else {
        EXPECT_NE(matmul_choice(p), "plain") << to_string(p);
      }
    }
  }
}

// Rows become codes from nine of them on, their norms on the way.
TEST(CudaListTest, Fp8RowsBecomeCodesWhereTheyAreMore) {
  for (const bool normed : {false, true}) {
    for (const int64_t m : {1, 4, 9, 32, 64, 128, 512}) {
      MatmulProblem p{.m = m,
                      .n = 6144,
                      .k = 4096,
                      .format = WeightFormat::kBF16,
                      .layout = WeightLayout::kFp8Channels,
                      .x_type = normed ? DType::kF32 : DType::kBF16,
                      .out_type = DType::kBF16,
                      .normed = normed};
      EXPECT_EQ(matmul_choice(p), m <= 8     ? "small_m"
                                  : m <= 128 ? "wide_m_fp8"
                                             : "gemm_fp8")
          << to_string(p);
      p.invariant = true;
      EXPECT_EQ(matmul_choice(p), normed && m > 4 ? "" : "small_m") << to_string(p);
    }
  }
  const MatmulProblem wide{.m = 32,
                           .n = 6144,
                           .k = 16384,
                           .format = WeightFormat::kBF16,
                           .layout = WeightLayout::kFp8Channels,
                           .x_type = DType::kF32,
                           .out_type = DType::kBF16,
                           .normed = true};
  EXPECT_EQ(matmul_choice(wide), "") << "a row that no block holds is normed apart";
}

// So many rows are worth writing 4-bit weights out as bf16 first.
TEST(CudaListTest, Int4WeightsOfManyRowsAreDequantizedOnce) {
  MatmulProblem p{.n = 6144,
                  .k = 4096,
                  .format = WeightFormat::kBF16,
                  .layout = WeightLayout::kInt4Groups,
                  .library = true,
                  .x_type = DType::kBF16,
                  .out_type = DType::kBF16};
  for (const int64_t m : {32, 128, 192}) {
    p.m = m;
    EXPECT_EQ(matmul_choice(p), "wide_m") << m;
  }
  for (const int64_t m : {1024, 8192}) {
    p.m = m;
    EXPECT_THAT(matmul_choice(p), testing::AnyOf("cublaslt_int4", "gemm_int4")) << m;
  }
  p.gated = true;
  EXPECT_EQ(matmul_choice(p), "gemm_int4");
}

TEST(CudaListTest, NormsGoIntoProductsOfFewRows) {
  MatmulProblem p{.m = 1,
                  .n = 6144,
                  .k = 4096,
                  .format = WeightFormat::kBF16,
                  .x_type = DType::kF32,
                  .out_type = DType::kBF16,
                  .normed = true};
  EXPECT_EQ(matmul_choice(p), "small_m");
  p.m = 5;
  EXPECT_EQ(matmul_choice(p), "") << "more than a block's shared memory holds";
  p.k = 2048;
  EXPECT_EQ(matmul_choice(p), "small_m");
}

TEST(CudaListTest, AttentionOfABf16StepGoesByWhetherItDecodes) {
  AttentionProblem p{.rows = 1,
                     .num_sequences = 1,
                     .max_rows = 1,
                     .max_context = 4096,
                     .heads = 9,
                     .kv_heads = 3,
                     .head_dim = 64,
                     .block_tokens = 32,
                     .format = KvFormat::kBF16,
                     .query_type = DType::kBF16,
                     .out_type = DType::kBF16};
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kFp8}) {
    p.format = format;
    EXPECT_EQ(attention_choice(p), "paged_decode");
    AttentionProblem prompt = p;
    prompt.rows = prompt.max_rows = 512;
    EXPECT_EQ(attention_choice(prompt), "paged_prefill");
    AttentionProblem invariant = p;
    invariant.invariant = true;
    EXPECT_EQ(attention_choice(invariant), "paged_prefill");
  }
  p.alibi = true;
  EXPECT_EQ(attention_choice(p), "plain");
}

TEST(CudaListTest, OtherChipsAreNotServed) {
  device::Caps caps = device::h200_caps();
  caps.compute_major = 8;
  const MatmulProblem p{.m = 1, .n = 16, .k = 32};
  EXPECT_EQ(choose(device_kernels().matmul, caps, p), nullptr);
}

TEST(CudaListTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const MatmulEntry& entry : device_kernels().matmul)
    EXPECT_TRUE(names.insert(entry.name).second);
  names.clear();
  for (const AttentionEntry& entry : device_kernels().attention)
    EXPECT_TRUE(names.insert(entry.name).second);
}

TEST(ChooseTest, TheCheapestThatSupportsTheProblemWinsAndOrderBreaksTies) {
  const auto launch = [](const MatmulParams&, device::Stream&) { return Status(); };
  const auto scratch = [](const device::Caps&, const MatmulProblem&) { return size_t{0}; };
  const auto any = [](const device::Caps&, const MatmulProblem&) { return true; };
  const auto few = [](const device::Caps&, const MatmulProblem& p) { return p.m <= 4; };
  const auto one = [](const device::Caps&, const MatmulProblem&) { return 1.0; };
  const auto two = [](const device::Caps&, const MatmulProblem&) { return 2.0; };
  const MatmulEntry entries[] = {{"slow", any, two, scratch, launch},
                                 {"few", few, one, scratch, launch},
                                 {"few again", few, one, scratch, launch}};
  const std::span<const MatmulEntry> list(entries);
  const device::Caps caps;
  EXPECT_STREQ(choose(list, caps, MatmulProblem{.m = 4})->name, "few");
  EXPECT_STREQ(choose(list, caps, MatmulProblem{.m = 5})->name, "slow");
  EXPECT_EQ(choose(list.subspan(1), caps, MatmulProblem{.m = 5}), nullptr);
}

}  // namespace
}  // namespace pelton::kernels::cuda
