// Causal attention of prompts of 1,024 tokens against its three steps one after another: cuBLASLt's
// batched Q K^T, a softmax over rows of scores in memory, cuBLASLt's batched P V (V turned
// beforehand, as suits the library).
#include <cuda_bf16.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "harness.h"
#include "paged_prefill_cases.h"

namespace pelton::bench_cuda {

namespace {

constexpr int kTokens = 1024;
constexpr int kSequences = 16;
constexpr int kHeads = 32;
constexpr int kDim = 128;
constexpr int kBatch = kSequences * kHeads;

// Row i of each matrix becomes the softmax over its first i + 1 scores, zeros beyond. A warp a row,
// which stays in registers.
__global__ void __launch_bounds__(256) softmax_kernel(__nv_bfloat16* scores, float multiplier) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int visible = static_cast<int>(row % kTokens) + 1;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(scores + row * kTokens);
  constexpr int kPairs = kTokens / 64;
  float2 v[kPairs];
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int at = lane + 32 * i;
    v[i] = 2 * at < visible ? __bfloat1622float2(pairs[at]) : make_float2(-INFINITY, -INFINITY);
    if (2 * at + 1 >= visible) v[i].y = -INFINITY;
    highest = fmaxf(highest, fmaxf(v[i].x, v[i].y));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    v[i].x = exp2f((v[i].x - highest) * multiplier);
    v[i].y = exp2f((v[i].y - highest) * multiplier);
    sum += v[i].x + v[i].y;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    pairs[lane + 32 * i] = __floats2bfloat162_rn(v[i].x * inverse, v[i].y * inverse);
  }
}

}  // namespace

void bench_unfused(Report& report) {
  const std::unique_ptr<CublasLt> library = CublasLt::open();
  if (library == nullptr) return;
  PrefillCase c;
  c.pages.heads = c.pages.kv_heads = kHeads;
  c.pages.head_dim = kDim;
  c.pages.block_tokens = 128;
  c.pages.lengths.assign(kSequences, kTokens);
  c.rows.assign(kSequences, kTokens);
  const PrefillBatch fused = make_prefill_batch(c, 1, 3);
  const size_t matrix = size_t{kTokens} * kDim;
  Buffer q(kBatch * matrix * 2);
  Buffer k(kBatch * matrix * 2);
  Buffer v(kBatch * matrix * 2);
  for (const Buffer* b : {&q, &k, &v}) fill(*b, Fill::kNormalBF16, 1.0f, 7);
  Buffer out(kBatch * matrix * 2);
  Buffer scores(size_t{kBatch} * kTokens * kTokens * 2);
  kernels::cuda::CublasLtProblem qk;
  qk.m = qk.n = kTokens;
  qk.k = kDim;
  qk.batch = kBatch;
  qk.x_step = qk.weight_step = static_cast<int64_t>(matrix);
  qk.out_step = int64_t{kTokens} * kTokens;
  kernels::cuda::CublasLtProblem pv;
  pv.m = pv.k = kTokens;
  pv.n = kDim;
  pv.batch = kBatch;
  pv.x_step = qk.out_step;
  pv.weight_step = pv.out_step = static_cast<int64_t>(matrix);
  const bool found = library->prepare(qk) && library->prepare(pv);
  check(report, found, "cublaslt has batched products");
  if (!found) return;
  Timed pelton;
  pelton.row = {
      "unfused", "bf16 1024", "pelton", 0, 0, 0, 2.0 * kBatch * double{kTokens} * kTokens * kDim};
  pelton.launches = 2;
  pelton.record = [&](cudaStream_t stream) {
    for (int i = 0; i < 2; ++i) {
      require(kernels::cuda::launch_paged_prefill(fused.args, stream), "launch");
    }
  };
  Timed steps = pelton;
  steps.row.variant = "cublaslt";
  steps.launches = 1;
  steps.record = [&](cudaStream_t stream) {
    kernels::cuda::CublasLtOperands o;
    o.x = q.as<void>();
    o.weight = k.as<void>();
    o.out = scores.as<void>();
    check(report, library->product(qk, o, stream), "cublaslt");
    softmax_kernel<<<kBatch * kTokens / 8, 256, 0, stream>>>(
        scores.as<__nv_bfloat16>(), 1.4426950408889634f / std::sqrt(static_cast<float>(kDim)));
    require(cudaGetLastError(), "softmax");
    o.x = scores.as<void>();
    o.weight = v.as<void>();
    o.out = out.as<void>();
    check(report, library->product(pv, o, stream), "cublaslt");
  };
  std::vector<Timed> cases = {pelton, steps};
  time_interleaved(cases, 7, report);
}

}  // namespace pelton::bench_cuda
