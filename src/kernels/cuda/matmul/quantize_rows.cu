#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/reduce.cuh"
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

  static __device__ __forceinline__ uint32_t of(float a, float b, float c, float d) {
    if constexpr (kind == RowCodes::kFp8) {
      const auto low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
      const auto high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
      return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
    }
    uint32_t codes = 0;
    int shift = 0;
#pragma unroll
    for (const float v : {a, b, c, d}) {
      codes |= (static_cast<uint32_t>(__float2int_rn(v)) & 0xffu) << shift;
      shift += 8;
    }
    return codes;
  }
  static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b, float inverse) {
    return of(low_bf16(a) * inverse, high_bf16(a) * inverse, low_bf16(b) * inverse,
              high_bf16(b) * inverse);
  }
  static __device__ __forceinline__ uint2 of(const uint4& piece, float inverse) {
    return make_uint2(of(piece.x, piece.y, inverse), of(piece.z, piece.w, inverse));
  }
};

// A row's largest magnitude out of the bits of each thread's, NaN where it is not finite; every
// thread gets it.
__device__ __forceinline__ float block_largest(uint32_t bits) {
  __shared__ uint32_t partial[kThreads / 32];
  bits = __reduce_max_sync(~0u, bits);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = bits;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) bits = max(bits, partial[i]);
  constexpr uint32_t kInfinity = 0x7f800000u;
  return __uint_as_float(bits < kInfinity ? bits : 0x7fc00000u);
}

// What turns numbers into codes; whoever asks for a row of such small ones gets zeros.
template <RowCodes kind>
__device__ __forceinline__ float inverse_of(float& largest) {
  if (largest < 0x1p-100f) largest = 0.0f;
  return largest > 0.0f ? Codes<kind>::kLargest / largest : 0.0f;
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
  float largest = block_largest(max(pair >> 16, pair & 0xffffu) << 16);
  const float inverse = inverse_of<kind>(largest);
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

// Norms: what the row's numbers are divided by meets them in the scale alone, so one exchange
// between the threads is enough. `held` groups of four elements a thread.
template <RowCodes kind, int held>
__global__ void __launch_bounds__(kThreads) quantize_norms_kernel(QuantizeRowsArgs p) {
  using C = Codes<kind>;
  const int groups = p.columns / 4;
  const int first = static_cast<int>(threadIdx.x);
  const auto* from =
      reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + blockIdx.x * p.x_stride);
  const auto* weight = reinterpret_cast<const float4*>(p.norm_weight);
  auto* to = reinterpret_cast<uint32_t*>(static_cast<std::byte*>(p.codes) +
                                         static_cast<int64_t>(blockIdx.x) * p.columns);
  float4 w[held];
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = first + i * kThreads;
    w[i] = at < groups ? weight[at] : make_float4(0, 0, 0, 0);
  }
  wait_prerequisites();
  launch_dependents();
  float4 x[held];
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = first + i * kThreads;
    x[i] = at < groups ? from[at] : make_float4(0, 0, 0, 0);
  }
  float squares = 0;
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    squares = fmaf(x[i].x, x[i].x, squares);
    squares = fmaf(x[i].y, x[i].y, squares);
    squares = fmaf(x[i].z, x[i].z, squares);
    squares = fmaf(x[i].w, x[i].w, squares);
    x[i].x *= w[i].x;
    x[i].y *= w[i].y;
    x[i].z *= w[i].z;
    x[i].w *= w[i].w;
    for (const float v : {x[i].x, x[i].y, x[i].z, x[i].w}) {
      bits = max(bits, __float_as_uint(v) & 0x7fffffffu);
    }
  }
  squares = warp_sum(squares);
  __shared__ float sums[kThreads / 32];
  if (first % 32 == 0) sums[first / 32] = squares;
  float largest = block_largest(bits);
  const float inverse = inverse_of<kind>(largest);
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int at = first + i * kThreads;
    if (at < groups) {
      to[at] = C::of(x[i].x * inverse, x[i].y * inverse, x[i].z * inverse, x[i].w * inverse);
    }
  }
  if (first != 0) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += sums[i];
  const float norm = 1.0f / sqrtf(sum / static_cast<float>(p.columns) + p.norm_eps);
  p.scale[blockIdx.x] = largest * norm / C::kLargest;
}

template <RowCodes kind>
cudaError_t launch_kind(const QuantizeRowsArgs& a, const LaunchShape& shape, cudaStream_t stream) {
  if (a.norm_weight == nullptr) {
    return launch_programmatic(quantize_rows_kernel<kind>, a, shape, stream);
  }
  return a.columns <= 4 * 4 * kThreads
             ? launch_programmatic(quantize_norms_kernel<kind, 4>, a, shape, stream)
             : launch_programmatic(quantize_norms_kernel<kind, 8>, a, shape, stream);
}

}  // namespace

static_assert(kQuantizeMostNormed == 8 * 4 * kThreads);

bool supports(const QuantizeRowsArgs& a) {
  return a.rows >= 0 && a.columns > 0 && a.columns % 16 == 0 && a.x_stride >= a.columns &&
         a.x_stride % 8 == 0 && aligned(a.x) && aligned(a.codes) && aligned(a.norm_weight) &&
         (a.norm_weight == nullptr || a.columns <= kQuantizeMostNormed);
}

cudaError_t launch_quantize_rows(const QuantizeRowsArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.rows == 0) return cudaSuccess;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(a.rows);
  shape.block = kThreads;
  shape.programmatic = a.programmatic;
  return a.kind == RowCodes::kFp8 ? launch_kind<RowCodes::kFp8>(a, shape, stream)
                                  : launch_kind<RowCodes::kInt8>(a, shape, stream);
}

}  // namespace pelton::kernels::cuda
