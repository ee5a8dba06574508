// Product and packing kernels of one ISA level.
//
// A product call covers a run of 16-row tiles of one weight matrix and one block of activation
// rows. Every output element is accumulated over K in one order that depends on the format, the
// level and the kernel family only; how many rows or tiles a call covers changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cpu/packed_layout.h"

namespace pelton::kernels {

// Activation rows quantized to symmetric 8-bit codes, x ~ scale * code, with a scale for every 16
// columns (half a weight block). Arrays are [blocks][rows] so that a weight block meets its
// activations side by side.
//
// Weight codes are unsigned in the packed layout; formats that mean code - offset subtract
// offset * (sum of activation codes) through `offsets`, whose content is each level's own: one
// 32-bit word for every half of a (block, row).
enum class OffsetKind : uint8_t { kNone, k4, k8, k12, k16, k32, k128 };
inline constexpr int kOffsetKinds = 7;
inline constexpr int kHalvesPerBlock = 2;
inline constexpr int kHalfColumns = kBlockColumns / kHalvesPerBlock;

// The kind that a format's product reads; the same at every level.
constexpr OffsetKind offset_kind(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return OffsetKind::k8;
    case WeightFormat::kQ5_0:
      return OffsetKind::k16;
    case WeightFormat::kMXFP4:
      return OffsetKind::k12;
    case WeightFormat::kQ8_0:
    case WeightFormat::kIQ4_NL:
    case WeightFormat::kIQ4_XS:
      return OffsetKind::k128;
    case WeightFormat::kQ3_K:
      return OffsetKind::k4;
    case WeightFormat::kQ6_K:
      return OffsetKind::k32;
    default:
      return OffsetKind::kNone;
  }
}

// Whether the format has a minimum for every half of a block.
constexpr bool has_half_minimum(WeightFormat format) { return format == WeightFormat::kQ2_K; }

struct QuantizedRows {
  int64_t rows = 0;
  int64_t blocks = 0;
  int8_t* codes = nullptr;  // [blocks][rows][32], in [-127, 127]
  float* scales =
      nullptr;            // [blocks][rows][2]; NaN where the half holds a value that is not finite
  float* sums = nullptr;  // [blocks][rows] scale * code, summed over the block
  // [blocks][rows][2] the same over each half; null when no weight of the call has a minimum for
  // every half.
  float* half_sums = nullptr;
  uint32_t* offsets[kOffsetKinds] =
      {};  // [blocks][rows][2], null when no weight of the call reads it
};

// Activation rows as sums of two BF16 numbers, x ~ high + low to 16 bits, for levels that multiply
// BF16 faster than float. Rows lie in groups of 16 (the last may be narrower); in a group, for
// every 32 columns of K the high parts and then the low ones, each [16 pairs of columns][rows of
// the group][2].
inline constexpr int kSplitGroupRows = 16;
inline constexpr int kSplitColumns = 32;
struct SplitRows {
  int64_t rows = 0;
  int64_t columns = 0;        // a multiple of kSplitColumns
  uint16_t* parts = nullptr;  // [rows * columns * 2] in the order above
};
constexpr int64_t split_group_rows(int64_t rows, int64_t group) {
  const int64_t left = rows - group * kSplitGroupRows;
  return left < kSplitGroupRows ? left : kSplitGroupRows;
}

// One call of a product kernel. Exactly one of `quantized`, `split` and `x` is read, by the
// kernel's family.
struct ProductArgs {
  // Packed planes of the matrix; for formats used in place `low` is the file's bytes.
  const uint8_t* low = nullptr;
  const uint8_t* high = nullptr;
  const uint8_t* scales = nullptr;
  int64_t n = 0;  // output features
  int64_t k = 0;  // input features
  int64_t first_tile = 0;
  int64_t last_tile = 0;  // exclusive; tile t is output features [16t, 16t + 16)

  const QuantizedRows* quantized = nullptr;
  const SplitRows* split = nullptr;
  const float* x = nullptr;  // [rows, k]
  int64_t x_stride = 0;
  int64_t rows = 0;

  float* out = nullptr;  // [rows, n]
  int64_t out_stride = 0;
  const float* bias = nullptr;  // [n]
  bool accumulate = false;
};

using ProductKernel = void (*)(const ProductArgs&);
// Quantizes rows [first, last) of a row block; `x` is the block's row 0.
using QuantizeKernel = void (*)(const float* x, int64_t x_stride, int64_t first, int64_t last,
                                const QuantizedRows& out);

// Splits rows [first, last) of a row block; `x` is the block's row 0.
using SplitKernel = void (*)(const float* x, int64_t x_stride, int64_t first, int64_t last,
                             const SplitRows& out);

inline constexpr int kWeightFormats = static_cast<int>(WeightFormat::kCount);

// Rows of activations that one call may cover.
inline constexpr int kMaxProductRows = 64;

struct MatmulKernels {
  QuantizeKernel quantize = nullptr;
  ProductKernel int8[kWeightFormats] = {};   // block-quantized formats only
  ProductKernel exact[kWeightFormats] = {};  // float activations, every format
  // Where a level has none, `exact` serves.
  SplitKernel split = nullptr;
  ProductKernel split_product[kWeightFormats] = {};
};

}  // namespace pelton::kernels
