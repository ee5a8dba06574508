// Products of 8-bit activation rows with packed weights, AVX-512 VNNI: sixteen weight rows in eight
// registers of unsigned codes, met by every activation row with eight dot-product instructions,
// then acc += (scale_w * scale_a) * dot, block after block.
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
  const auto words = [&](OffsetKind kind) { return out.offsets[static_cast<int>(kind)]; };
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const int first = _mm256_extract_epi32(sums, 0);
  const int second = _mm256_extract_epi32(sums, 4);
  const int sum = first + second;
  const auto word = [](int value) { return static_cast<uint32_t>(value); };
  if (uint32_t* w = words(OffsetKind::k8)) w[at] = word(-8 * sum);
  if (uint32_t* w = words(OffsetKind::k12)) w[at] = word(-12 * sum);
  if (uint32_t* w = words(OffsetKind::k16)) w[at] = word(-16 * sum);
  if (uint32_t* w = words(OffsetKind::k128)) w[at] = word(-128 * sum);
  if (uint32_t* w = words(OffsetKind::kHalves4)) {
    w[2 * at] = word(-4 * first);
    w[2 * at + 1] = word(-4 * second);
  }
  if (uint32_t* w = words(OffsetKind::kHalves32)) {
    w[2 * at] = word(-32 * first);
    w[2 * at + 1] = word(-32 * second);
  }
  if (uint32_t* w = words(OffsetKind::kHalfSums)) {
    w[at] = (word(first) & 0xFFFFu) | word(second) << 16;
  }
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
