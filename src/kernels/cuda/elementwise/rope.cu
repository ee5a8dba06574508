// Rotary embedding. Angles once a step, a thread an angle, sine and cosine in double (as on the
// CPU: the angle is rounded to f32, its sine and cosine are exact); then a thread a rotated pair,
// in place. Bytes moved by the rotation: each element read and written once.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) rope_angles_kernel(RopeAnglesParams p) {
  enter_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.rows * p.half) return;
  const float angle =
      __fmul_rn(static_cast<float>(p.positions[i / p.half]), p.inv_freq[i % p.half]);
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  p.cosines[i] = __fmul_rn(static_cast<float>(cosine), p.magnitude);
  p.sines[i] = __fmul_rn(static_cast<float>(sine), p.magnitude);
}

__global__ void __launch_bounds__(kThreads) rope_kernel(RopeParams p) {
  enter_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t pairs = p.heads * p.half;
  if (i >= p.rows * pairs) return;
  const int64_t row = i / pairs;
  const int64_t pair = i % pairs % p.half;
  const int64_t head = i % pairs / p.half * p.head_dim;
  const int64_t first = head + (p.adjacent ? 2 * pair : pair);
  const int64_t second = p.adjacent ? first + 1 : first + p.half;
  const float cosine = p.cosines[row * p.half + pair];
  const float sine = p.sines[row * p.half + pair];
  const float a = load_at(p.x, row, first);
  const float b = load_at(p.x, row, second);
  store_at(p.x, row, first, __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine)));
  store_at(p.x, row, second, __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine)));
}

}  // namespace

Status rope_angles(const RopeAnglesParams& params, device::Stream& stream) {
  launch_chained(rope_angles_kernel, blocks_for(params.rows * params.half, kThreads), kThreads,
                 params, handle(stream));
  return stream.launched("rope_angles");
}

Status rope(const RopeParams& params, device::Stream& stream) {
  launch_chained(rope_kernel, blocks_for(params.rows * params.heads * params.half, kThreads),
                 kThreads, params, handle(stream));
  return stream.launched("rope");
}

}  // namespace pelton::kernels::cuda
