#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/quantize_rows.h"

namespace pelton::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kHeld = 8;  // pieces of eight elements that a thread holds

// Magnitudes of bf16 numbers are ordered as their bits are, NaN last.
__device__ __forceinline__ uint32_t largest_of(const uint4& piece, uint32_t largest) {
#pragma unroll
  for (const uint32_t word : {piece.x, piece.y, piece.z, piece.w}) {
    largest = __vmaxu2(largest, word & 0x7fff7fffu);
  }
  return largest;
}

template <RowCodes kind>
struct Codes {
  static constexpr float kLargest = kind == RowCodes::kFp8 ? 448.0f : 127.0f;

  // Of four elements.
  static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b, float inverse) {
    const float v[4] = {low_bf16(a) * inverse, high_bf16(a) * inverse, low_bf16(b) * inverse,
                        high_bf16(b) * inverse};
    if constexpr (kind == RowCodes::kFp8) {
      const auto low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, __NV_E4M3);
      const auto high =
          __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, __NV_E4M3);
      return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
    }
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      codes |= (static_cast<uint32_t>(__float2int_rn(v[i])) & 0xffu) << 8 * i;
    }
    return codes;
  }
  static __device__ __forceinline__ uint2 of(const uint4& piece, float inverse) {
    return make_uint2(of(piece.x, piece.y, inverse), of(piece.z, piece.w, inverse));
  }
};

// Every thread gets the largest.
__device__ __forceinline__ uint32_t block_largest(uint32_t v) {
  __shared__ uint32_t partial[kThreads / 32];
  v = __reduce_max_sync(~0u, v);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) v = max(v, partial[i]);
  return v;
}

template <RowCodes kind>
__global__ void __launch_bounds__(kThreads) quantize_rows_kernel(QuantizeRowsArgs p) {
  using C = Codes<kind>;
  const int pieces = p.columns / 8;
  const int first = static_cast<int>(threadIdx.x);
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(p.x) +
                                                    blockIdx.x * p.x_stride);
  auto* to = reinterpret_cast<uint2*>(static_cast<std::byte*>(p.codes) +
                                      static_cast<int64_t>(blockIdx.x) * p.columns);
  wait_prerequisites();
  launch_dependents();
  uint4 held[kHeld];
  uint32_t pair = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = first + i * kThreads;
    held[i] = at < pieces ? from[at] : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) pair = largest_of(held[i], pair);
  for (int at = first + kHeld * kThreads; at < pieces; at += kThreads) {
    pair = largest_of(from[at], pair);
  }
  const uint32_t bits = block_largest(max(pair >> 16, pair & 0xffffu));
  constexpr uint32_t kInfinity = 0x7f80;
  const float largest = __uint_as_float((bits < kInfinity ? bits : 0x7fc0u) << 16);
  const float inverse = largest > 0.0f ? C::kLargest / largest : 0.0f;
  if (threadIdx.x == 0) p.scale[blockIdx.x] = largest / C::kLargest;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = first + i * kThreads;
    if (at < pieces) to[at] = C::of(held[i], inverse);
  }
  for (int at = first + kHeld * kThreads; at < pieces; at += kThreads) {
    to[at] = C::of(from[at], inverse);
  }
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool supports(const QuantizeRowsArgs& a) {
  return a.rows >= 0 && a.columns > 0 && a.columns % 16 == 0 && a.x_stride >= a.columns &&
         a.x_stride % 8 == 0 && aligned(a.x) && aligned(a.codes);
}

cudaError_t launch_quantize_rows(const QuantizeRowsArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.rows == 0) return cudaSuccess;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(a.rows);
  shape.block = kThreads;
  shape.programmatic = a.programmatic;
  return launch_programmatic(a.kind == RowCodes::kFp8 ? quantize_rows_kernel<RowCodes::kFp8>
                                                      : quantize_rows_kernel<RowCodes::kInt8>,
                             a, shape, stream);
}

}  // namespace pelton::kernels::cuda
