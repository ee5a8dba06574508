// Products in plain C++, for processors without AVX2 and as the plainest reading of the packed
// layout. A tile is decoded block by block and met by every row of the call before the next block.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/cpu/levels.h"
#include "kernels/cpu/packing.h"

namespace pelton::kernels::generic {
namespace {

// Below this magnitude a block is taken as zero: its reciprocal scale would overflow.
constexpr float kSmallestMaximum = 0x1.0p-100f;

// `half`: its index among the halves of all blocks and rows. Returns scale * (sum of codes).
float quantize_half(const float* in, int64_t half, const QuantizedRows& out) {
  int8_t* codes = out.codes + half * kHalfColumns;
  // As integers, magnitudes order like floats and NaN lies above infinity.
  uint32_t maximum_bits = 0;
  for (int i = 0; i < kHalfColumns; ++i) {
    maximum_bits = std::max(maximum_bits, std::bit_cast<uint32_t>(in[i]) & 0x7FFFFFFFu);
  }
  const float maximum = std::bit_cast<float>(maximum_bits);
  const bool finite = maximum_bits < 0x7F800000u;
  const float inverse = finite && maximum >= kSmallestMaximum ? 127.0f / maximum : 0.0f;
  float scale = inverse == 0.0f ? 0.0f : maximum / 127.0f;
  if (!finite) scale = std::bit_cast<float>(0x7FC00000u);
  int sum = 0;
  for (int i = 0; i < kHalfColumns; ++i) {
    codes[i] = finite ? static_cast<int8_t>(std::nearbyint(in[i] * inverse)) : int8_t{0};
    sum += codes[i];
  }
  out.scales[half] = scale;
  return scale * static_cast<float>(sum);
}

void quantize(const float* x, int64_t x_stride, int64_t first, int64_t last,
              const QuantizedRows& out) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t block = 0; block < out.blocks; ++block) {
      const float* in = x + row * x_stride + block * kBlockColumns;
      const int64_t at = block * out.rows + row;
      const int64_t half = kHalvesPerBlock * at;
      const float first_sum = quantize_half(in, half, out);
      const float second_sum = quantize_half(in + kHalfColumns, half + 1, out);
      out.sums[at] = first_sum + second_sum;
      if (out.half_sums != nullptr) {
        out.half_sums[half] = first_sum;
        out.half_sums[half + 1] = second_sum;
      }
    }
  }
}

WeightMatrix packed_matrix(const ProductArgs& args, WeightFormat format) {
  WeightMatrix w;
  w.data = reinterpret_cast<const std::byte*>(args.low);
  w.rows = args.n;
  w.columns = args.k;
  w.format = format;
  w.layout = WeightLayout::kInterleaved;
  return w;
}

void store(const ProductArgs& args, int64_t tile, int64_t row, const float* acc) {
  const int64_t first = tile * kTileRows;
  const int count = static_cast<int>(std::min<int64_t>(kTileRows, args.n - first));
  float* out = args.out + row * args.out_stride + first;
  for (int r = 0; r < count; ++r) {
    float value = acc[r];
    if (args.bias != nullptr) value += args.bias[first + r];
    out[r] = args.accumulate ? out[r] + value : value;
  }
}

template <WeightFormat kFormat>
void add_block_int8(const DecodedBlock& w, const QuantizedRows& q, int64_t block, int64_t row,
                    float* acc) {
  constexpr bool kHalfMinimum = has_half_minimum(kFormat);
  const bool minimum = weight_format_info(kFormat).has_minimum;
  const int64_t at = block * q.rows + row;
  const int8_t* a = q.codes + at * kBlockColumns;
  for (int r = 0; r < kTileRows; ++r) {
    for (int h = 0; h < kHalvesPerBlock; ++h) {
      const int64_t half = kHalvesPerBlock * at + h;
      int dot = 0;
      for (int i = kHalfColumns * h; i < kHalfColumns * (h + 1); ++i) dot += w.codes[r][i] * a[i];
      acc[r] += w.scales[h][r] * (q.scales[half] * static_cast<float>(dot));
      if constexpr (kHalfMinimum) acc[r] -= w.minima[h][r] * q.half_sums[half];
    }
    if (minimum && !kHalfMinimum) acc[r] -= w.minima[0][r] * q.sums[at];
  }
}

template <WeightFormat kFormat>
void product_int8(const ProductArgs& args) {
  const WeightMatrix w = packed_matrix(args, kFormat);
  const QuantizedRows& q = *args.quantized;
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    float acc[kMaxProductRows][kTileRows] = {};
    for (int64_t block = 0; block < q.blocks; ++block) {
      DecodedBlock decoded;
      decode_packed_block(w, tile, block, &decoded);
      for (int64_t m = 0; m < args.rows; ++m) {
        add_block_int8<kFormat>(decoded, q, block, m, acc[m]);
      }
    }
    for (int64_t m = 0; m < args.rows; ++m) store(args, tile, m, acc[m]);
  }
}

template <WeightFormat kFormat>
void product_exact(const ProductArgs& args) {
  const WeightMatrix w = packed_matrix(args, kFormat);
  const bool has_minimum = weight_format_info(kFormat).has_minimum;
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    float acc[kMaxProductRows][kTileRows] = {};
    for (int64_t block = 0; block < args.k / kBlockColumns; ++block) {
      DecodedBlock decoded;
      decode_packed_block(w, tile, block, &decoded);
      for (int r = 0; r < kTileRows; ++r) {
        float values[kBlockColumns];
        for (int i = 0; i < kBlockColumns; ++i) {
          values[i] = decoded.scales[i / 16][r] * static_cast<float>(decoded.codes[r][i]);
          if (has_minimum) values[i] -= decoded.minima[i / 16][r];
        }
        for (int64_t m = 0; m < args.rows; ++m) {
          const float* x = args.x + m * args.x_stride + block * kBlockColumns;
          for (int i = 0; i < kBlockColumns; ++i) acc[m][r] += values[i] * x[i];
        }
      }
    }
    for (int64_t m = 0; m < args.rows; ++m) store(args, tile, m, acc[m]);
  }
}

template <WeightFormat kFormat>
float plain_value(const uint8_t* row, int64_t i) {
  if constexpr (kFormat == WeightFormat::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, row + 2 * i, sizeof(bits));
  return kFormat == WeightFormat::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// F32, F16 and BF16, in place: eight partial sums along K, folded in order.
template <WeightFormat kFormat>
void product_plain(const ProductArgs& args) {
  constexpr int64_t kBytes = kFormat == WeightFormat::kF32 ? 4 : 2;
  constexpr int64_t kLanes = 8;
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    const int64_t first = tile * kTileRows;
    const int64_t count = std::min<int64_t>(kTileRows, args.n - first);
    for (int64_t m = 0; m < args.rows; ++m) {
      const float* x = args.x + m * args.x_stride;
      float acc[kTileRows] = {};
      for (int64_t r = 0; r < count; ++r) {
        const uint8_t* w = args.low + (first + r) * args.k * kBytes;
        float lanes[kLanes] = {};
        for (int64_t i = 0; i < args.k; ++i) lanes[i % kLanes] += plain_value<kFormat>(w, i) * x[i];
        for (const float lane : lanes) acc[r] += lane;
      }
      store(args, tile, m, acc);
    }
  }
}

template <WeightFormat kFormat>
void fill_format(MatmulKernels& kernels) {
  constexpr auto kIndex = static_cast<size_t>(kFormat);
  if constexpr (packed_geometry(kFormat).low == 0) {
    kernels.exact[kIndex] = product_plain<kFormat>;
  } else {
    kernels.int8[kIndex] = product_int8<kFormat>;
    kernels.exact[kIndex] = product_exact<kFormat>;
  }
}

template <size_t... kIndices>
void fill_formats(MatmulKernels& kernels, std::index_sequence<kIndices...>) {
  (fill_format<static_cast<WeightFormat>(kIndices)>(kernels), ...);
}

}  // namespace

void fill_matmul(MatmulKernels& kernels) {
  kernels.quantize = quantize;
  fill_formats(kernels, std::make_index_sequence<kWeightFormats>());
}

}  // namespace pelton::kernels::generic
