// Random weights of a known shape, made where they lie: a thread makes four numbers, of int4 a word
// of eight codes. Bytes moved: each byte of the layout written once.
#include <cuda_fp16.h>

#include "base/splitmix.h"
#include "kernels/cuda/common/convert.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul/int4_pack.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCodeWords = 256;  // of a block of int4_pack.h; its scales follow
constexpr int kBlockWords = static_cast<int>(kInt4BlockBytes / sizeof(uint32_t));

__device__ int64_t thread_index() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

__global__ void __launch_bounds__(kThreads) bf16_kernel(RandomWeightsParams p) {
  const int64_t i = thread_index();
  const uint64_t bits = counter_bits(p.key, static_cast<uint64_t>(i));
  auto* out = reinterpret_cast<__nv_bfloat16*>(p.out);
  for (int lane = 0; lane < 4 && 4 * i + lane < p.rows * p.columns; ++lane)
    out[4 * i + lane] = __float2bfloat16_rn(__fmul_rn(p.spread, signed_unit(bits, lane)));
}

__global__ void __launch_bounds__(kThreads) fp8_kernel(RandomWeightsParams p) {
  const int64_t i = thread_index();
  const uint64_t bits = counter_bits(p.key, static_cast<uint64_t>(i));
  if (i < p.rows) p.scale[i] = __fdiv_rn(p.spread, 448.0f);
  for (int lane = 0; lane < 4 && 4 * i + lane < p.rows * p.columns; ++lane) {
    p.out[4 * i + lane] = static_cast<std::byte>(__nv_cvt_float_to_fp8(
        __fmul_rn(448.0f, signed_unit(bits, lane)), __NV_SATFINITE, __NV_E4M3));
  }
}

__global__ void __launch_bounds__(kThreads) int8_kernel(RandomWeightsParams p) {
  const int64_t i = thread_index();
  const uint64_t bits = counter_bits(p.key, static_cast<uint64_t>(i));
  if (i < p.rows) p.scale[i] = __fdiv_rn(p.spread, 127.0f);
  for (int lane = 0; lane < 4 && 4 * i + lane < p.rows * p.columns; ++lane) {
    const int code = __float2int_rn(__fmul_rn(127.0f, signed_unit(bits, lane)));
    p.out[4 * i + lane] = static_cast<std::byte>(code & 0xFF);
  }
}

// Word `word` of the codes of block (tile, group): two pairs of inputs of each of two rows, in the
// order of int4_pack.h.
__device__ uint32_t code_word(const RandomWeightsParams& p, int64_t tile, int64_t group, int word) {
  const int half = word / 128;
  const int g = word / 16 % 8;
  const int t = word / 4 % 4;
  const int input = 64 * half + 16 * (word % 4) + 2 * t;
  uint32_t packed = 0;
  for (int upper = 0; upper < 2; ++upper) {
    const int64_t row = tile * kInt4TileRows + g + 8 * upper;
    for (int pair = 0; pair < 2; ++pair) {
      const auto first =
          static_cast<uint64_t>(row * p.columns + group * kInt4Group + input + 8 * pair);
      const uint64_t bits = counter_bits(p.key, first / 4);
      for (int i = 0; i < 2; ++i) {
        const float unit = signed_unit(bits, static_cast<int>(first % 4) + i);
        const int code = 8 + __float2int_rn(__fmul_rn(7.0f, unit));
        packed |= static_cast<uint32_t>(code) << (4 * (upper + 2 * pair) + 16 * i);
      }
    }
  }
  return packed;
}

__global__ void __launch_bounds__(kThreads) int4_kernel(RandomWeightsParams p) {
  const int64_t i = thread_index();
  const int64_t groups = p.columns / kInt4Group;
  const int64_t block = i / kBlockWords;
  if (block >= p.rows / kInt4TileRows * groups) return;
  const int word = static_cast<int>(i % kBlockWords);
  uint32_t value;
  if (word < kCodeWords) {
    value = code_word(p, block / groups, block % groups, word);
  } else {
    const uint32_t scale = __half_as_ushort(__float2half_rn(__fdiv_rn(p.spread, 7.0f)));
    value = scale | scale << 16;
  }
  reinterpret_cast<uint32_t*>(p.out)[i] = value;
}

}  // namespace

Status random_weights(const RandomWeightsParams& p, device::Stream& stream) {
  if (p.rows == 0 || p.columns == 0) return {};
  const int64_t elements = p.rows * p.columns;
  const unsigned quarters = blocks_for((elements + 3) / 4, kThreads);
  const cudaStream_t queue = handle(stream);
  switch (p.layout) {
    case WeightLayout::kFp8Channels:
      fp8_kernel<<<quarters, kThreads, 0, queue>>>(p);
      break;
    case WeightLayout::kInt8Channels:
      int8_kernel<<<quarters, kThreads, 0, queue>>>(p);
      break;
    case WeightLayout::kInt4Groups: {
      const int64_t blocks = p.rows / kInt4TileRows * (p.columns / kInt4Group);
      int4_kernel<<<blocks_for(blocks * kBlockWords, kThreads), kThreads, 0, queue>>>(p);
      break;
    }
    default:
      bf16_kernel<<<quarters, kThreads, 0, queue>>>(p);
  }
  return stream.launched("random_weights");
}

}  // namespace pelton::kernels::cuda
