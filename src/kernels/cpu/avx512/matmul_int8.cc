// Products of 8-bit activation rows with packed weights, AVX-512 VNNI: sixteen weight rows in eight
// registers of unsigned codes, met by every activation row with eight dot-product instructions,
// then the float side, block after block.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {

void fill_matmul_int8(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/shared/matmul_formats.inl"
#include "kernels/cpu/shared/matmul_isa_512.inl"

static_assert(Isa::kGroups == 1);

#include "kernels/cpu/shared/matmul_vnni_512.inl"

static_assert(Isa::kRows == kTileRows);

#include "kernels/cpu/shared/matmul_int8.inl"

void write_offsets(const QuantizedRows& out, int64_t at, __m256i pairs) {
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const int halves[2] = {_mm256_extract_epi32(sums, 0), _mm256_extract_epi32(sums, 4)};
  const auto write = [&](OffsetKind kind, int offset) {
    uint32_t* words = out.offsets[static_cast<int>(kind)];
    if (words == nullptr) return;
    for (int h = 0; h < kHalvesPerBlock; ++h) {
      words[kHalvesPerBlock * at + h] = static_cast<uint32_t>(-offset * halves[h]);
    }
  };
  write(OffsetKind::k4, 4);
  write(OffsetKind::k8, 8);
  write(OffsetKind::k12, 12);
  write(OffsetKind::k16, 16);
  write(OffsetKind::k32, 32);
  write(OffsetKind::k128, 128);
}

static_assert(kBlockColumns == 32);

#include "kernels/cpu/shared/matmul_quantize.inl"

template <WeightFormat... kFormats>
void fill(MatmulKernels& kernels) {
  ((kernels.int8[static_cast<int>(kFormats)] = product<kFormats>), ...);
}

}  // namespace

void fill_matmul_int8(MatmulKernels& kernels) {
  using enum WeightFormat;
  kernels.quantize = quantize;
  fill<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
       kMXFP4>(kernels);
}

}  // namespace pelton::kernels::avx512
