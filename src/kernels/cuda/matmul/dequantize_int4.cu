#include <cuda_fp16.h>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/dequantize_int4.h"
#include "kernels/cuda/matmul/int4_pack.h"

namespace pelton::kernels::cuda {

namespace {

constexpr int kThreads = 256;  // a block of codes: 16 rows of 16 pieces of eight inputs

__global__ void __launch_bounds__(kThreads) dequantize_int4_kernel(DequantizeInt4Args p) {
  const int groups = p.k / kInt4Group;
  const int64_t block = blockIdx.x;
  const int tile = static_cast<int>(block / groups);
  const int group = static_cast<int>(block % groups);
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int piece = static_cast<int>(threadIdx.x) % 16;
  const auto* from =
      static_cast<const std::byte*>(p.weight) + block * static_cast<int64_t>(kInt4BlockBytes);
  const float scale = __half2float(reinterpret_cast<const __half*>(from + 1024)[row]);
  // Words of the four lanes that hold the row's pairs, 16 bytes apart.
  const auto* words = reinterpret_cast<const uint32_t*>(from + 512 * (piece / 8) + 64 * (row % 8) +
                                                        4 * (piece % 8 / 2));
  const int bit = 4 * (row / 8 + 2 * (piece % 2));
  uint32_t out[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const uint32_t codes = __ldg(words + 4 * t) >> bit;
    const auto low = static_cast<float>(static_cast<int>(codes & 15u) - 8);
    const auto high = static_cast<float>(static_cast<int>(codes >> 16 & 15u) - 8);
    out[t] = pack_bf16x2(low * scale, high * scale);
  }
  wait_prerequisites();
  launch_dependents();
  const int j = tile * kInt4TileRows + row;
  if (j >= p.n) return;
  auto* to = static_cast<std::byte*>(p.out) +
             2 * (static_cast<int64_t>(j) * p.k + group * kInt4Group + 8 * piece);
  *reinterpret_cast<uint4*>(to) = make_uint4(out[0], out[1], out[2], out[3]);
}

}  // namespace

bool supports(const DequantizeInt4Args& a) {
  return a.n >= 0 && a.k > 0 && a.k % kInt4Group == 0 && aligned(a.weight) && aligned(a.out);
}

cudaError_t launch_dequantize_int4(const DequantizeInt4Args& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.n == 0) return cudaSuccess;
  LaunchShape shape;
  shape.grid =
      static_cast<unsigned>((a.n + kInt4TileRows - 1) / kInt4TileRows * (a.k / kInt4Group));
  shape.block = kThreads;
  shape.programmatic = a.programmatic;
  return launch_programmatic(dequantize_int4_kernel, a, shape, stream);
}

}  // namespace pelton::kernels::cuda
