// out [m, n] = x [m, k] W^T, without tensor cores: one warp an output column and up to eight rows.
// Lanes take four (or, where k is no multiple of four, single) elements in turn and their sums meet
// in a fixed tree, so a row's bits depend on k alone: not on m, nor on where the row stands.
// Weights F32, F16, BF16, or FP8 and int8 with a scale a column of out, activations f32 or bf16,
// sums f32. Bytes moved: W once for eight rows, x from cache. Any m, n, k.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 8;

// Adds this lane's share of the products of `rows` rows with one row of W.
template <typename T, typename X, int kWidth>
__device__ void multiply(const MatmulParams& p, const T* w, int64_t first_row, int rows, int lane,
                         float* sums) {
  const int64_t k = p.problem.k;
  const X* x = row_of<X>(p.x, first_row);
  for (int64_t i = static_cast<int64_t>(lane) * kWidth; i < k; i += 32 * kWidth) {
    if constexpr (kWidth == 4) {
      const float4 b = Four<T>::load(w + i);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows) break;
        const float4 a = Four<X>::load(x + r * p.x.stride + i);
        sums[r] = fmaf(a.x, b.x, sums[r]);
        sums[r] = fmaf(a.y, b.y, sums[r]);
        sums[r] = fmaf(a.z, b.z, sums[r]);
        sums[r] = fmaf(a.w, b.w, sums[r]);
      }
    } else {
      const float b = to_float(w[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows) break;
        sums[r] = fmaf(to_float(x[r * p.x.stride + i]), b, sums[r]);
      }
    }
  }
}

template <typename T, typename X, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) matmul_kernel(MatmulParams p) {
  enter_chain();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (column >= p.problem.n) return;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kRows), p.problem.m - first_row));
  float sums[kRows] = {};
  multiply<T, X, kWidth>(p, reinterpret_cast<const T*>(p.weight) + column * p.problem.k, first_row,
                         rows, lane, sums);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float sum = warp_sum(sums[r]);
    if (lane != 0 || r >= rows) continue;
    if (p.scale != nullptr) sum *= p.scale[column];
    if (p.bias != nullptr) sum += p.bias[column];
    if (p.problem.accumulate) sum = load_at(p.out, first_row + r, column) + sum;
    store_at(p.out, first_row + r, column, sum);
  }
}

template <typename T>
void launch(const MatmulParams& p, cudaStream_t stream) {
  const dim3 grid(blocks_for(p.problem.n, kWarps), blocks_for(p.problem.m, kRows));
  with_type(p.x.type, [&](auto x) {
    const bool is_wide = p.problem.k % 4 == 0 && is_four_wide(p.x);
    launch_chained(is_wide ? matmul_kernel<T, decltype(x), 4> : matmul_kernel<T, decltype(x), 1>,
                   grid, kWarps * 32, p, stream);
  });
}

}  // namespace

Status matmul_plain(const MatmulParams& params, device::Stream& stream) {
  if (params.problem.layout == WeightLayout::kFp8Channels) {
    launch<__nv_fp8_e4m3>(params, handle(stream));
    return stream.launched("matmul_plain");
  }
  if (params.problem.layout == WeightLayout::kInt8Channels) {
    launch<int8_t>(params, handle(stream));
    return stream.launched("matmul_plain");
  }
  switch (params.problem.format) {
    case WeightFormat::kF32:
      launch<float>(params, handle(stream));
      break;
    case WeightFormat::kF16:
      launch<__half>(params, handle(stream));
      break;
    case WeightFormat::kBF16:
      launch<__nv_bfloat16>(params, handle(stream));
      break;
    default:
      return unsupported("the plain product takes F32, F16 and BF16 weights");
  }
  return stream.launched("matmul_plain");
}

}  // namespace pelton::kernels::cuda
