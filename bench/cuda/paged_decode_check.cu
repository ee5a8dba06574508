// paged_decode against double precision over head shapes, page sizes, ragged and empty contexts and
// variants, and equal bits of a sequence whatever its batch.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "paged_decode_cases.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::PagedDecodeArgs;
using kernels::cuda::PageType;

__device__ double element(const void* pages, PageType type, int64_t at) {
  return type == PageType::kBF16
             ? static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(pages)[at]))
             : static_cast<double>(float(static_cast<const __nv_fp8_e4m3*>(pages)[at]));
}

// One block a (sequence, head); thread d owns dim d, every thread walks all keys.
__global__ void reference_kernel(PagedDecodeArgs a, double* answers, double* magnitudes) {
  const int sequence = static_cast<int>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) % a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const int dim = static_cast<int>(threadIdx.x);
  const int length = a.context_lens[sequence];
  const int first = a.window > 0 && a.window < length ? length - a.window : 0;
  const __nv_bfloat16* q =
      static_cast<const __nv_bfloat16*>(a.q) + sequence * a.q_stride + head * a.head_dim;
  const int64_t element_bytes = a.page_type == PageType::kBF16 ? 2 : 1;
  __shared__ double parts[256];
  const auto row_of = [&](int key) {
    const int64_t block = a.block_table[sequence * a.table_stride + key / a.block_tokens];
    return block * a.block_stride / element_bytes +
           (static_cast<int64_t>(kv_head) * a.block_tokens + key % a.block_tokens) * a.head_dim;
  };
  double maximum = a.sinks != nullptr ? a.sinks[head] : -INFINITY;
  double sum = a.sinks != nullptr ? 1 : 0;
  double value = 0;
  double magnitude = 0;
  for (int key = first; key < length; ++key) {
    const int64_t row = row_of(key);
    parts[dim] =
        static_cast<double>(__bfloat162float(q[dim])) * element(a.keys, a.page_type, row + dim);
    __syncthreads();
    for (int step = a.head_dim / 2; step > 0; step /= 2) {
      if (dim < step) parts[dim] += parts[dim + step];
      __syncthreads();
    }
    double score = parts[0] * a.scale * a.key_scale;
    __syncthreads();
    if (a.soft_cap > 0) score = a.soft_cap * tanh(score / a.soft_cap);
    const double highest = fmax(maximum, score);
    const double rescale = exp(maximum - highest);
    const double weight = exp(score - highest);
    const double v = element(a.values, a.page_type, row + dim) * a.value_scale;
    sum = sum * rescale + weight;
    value = value * rescale + weight * v;
    magnitude = magnitude * rescale + weight * fabs(v);
    maximum = highest;
  }
  const int64_t at = static_cast<int64_t>(blockIdx.x) * a.head_dim + dim;
  answers[at] = sum > 0 ? value / sum : 0;
  magnitudes[at] = sum > 0 ? magnitude / sum : 0;
}

std::string describe(const DecodeCase& c) {
  return std::string(c.type == PageType::kFp8 ? "fp8" : "bf16") + " heads " +
         std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " dim " +
         std::to_string(c.head_dim) + " page " + std::to_string(c.block_tokens) + " batch " +
         std::to_string(c.lengths.size()) + " first length " +
         (c.lengths.empty() ? "-" : std::to_string(c.lengths[0])) + " window " +
         std::to_string(c.window) + (c.soft_cap > 0 ? " cap" : "") + (c.sinks ? " sinks" : "");
}

std::vector<uint16_t> run(const DecodeBatch& d, const std::string& what) {
  const size_t count = d.out.bytes() / 2;
  require(cudaMemset(d.out.as<void>(), 0xff, d.out.bytes()), "poison");
  require(kernels::cuda::launch_paged_decode(d.args, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  return download<uint16_t>(d.out, count);
}

void check_case(Report& report, const DecodeCase& c, uint64_t seed) {
  size_t layer = 0;
  const DecodeBatch d = make_decode_batch(c, 1, seed, &layer);
  const std::string what = describe(c);
  std::vector<uint16_t> got = run(d, what);
  const size_t count = got.size();
  Buffer answers(count * 8);
  Buffer magnitudes(count * 8);
  reference_kernel<<<static_cast<unsigned>(c.lengths.size()) * static_cast<unsigned>(c.heads),
                     static_cast<unsigned>(c.head_dim)>>>(d.args, answers.as<double>(),
                                                          magnitudes.as<double>());
  require(cudaGetLastError(), "reference");
  require(cudaDeviceSynchronize(), "reference");
  const std::vector<double> expected = download<double>(answers, count);
  const std::vector<double> magnitude = download<double>(magnitudes, count);
  double worst = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(got[i]) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    // Rounding of the result, of each weight (independent: far below the sum of all), of scores.
    const double allowed =
        std::ldexp(std::fabs(expected[i]), -8) + std::ldexp(magnitude[i], -9) + 1e-30;
    const double error = std::fabs(value - expected[i]) / allowed;
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  check(report, worst <= 1, what + ": error " + std::to_string(worst) + " of the bound");
  const std::vector<uint16_t> again = run(d, what);
  check(report, got == again, what + ": a second run differs");
}

// A sequence alone has the bits it has among others.
void check_invariance(Report& report, DecodeCase c) {
  size_t layer = 0;
  const DecodeBatch d = make_decode_batch(c, 1, 3, &layer);
  const std::vector<uint16_t> together = run(d, describe(c));
  const size_t row = static_cast<size_t>(c.heads * c.head_dim);
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    PagedDecodeArgs alone = d.args;
    alone.batch = 1;
    alone.q = d.q.as<void>(b * row * 2);
    alone.block_table = d.args.block_table + static_cast<int64_t>(b) * d.args.table_stride;
    alone.context_lens = d.args.context_lens + b;
    alone.out = d.out.as<void>(b * row * 2);
    require(kernels::cuda::launch_paged_decode(alone, nullptr), "alone");
  }
  require(cudaDeviceSynchronize(), "alone");
  check(report, download<uint16_t>(d.out, together.size()) == together,
        describe(c) + ": bits differ from a sequence alone");
}

}  // namespace

void check_paged_decode(Report& report, bool quick) {
  const std::vector<int32_t> ragged = {1,   0,   15,  16,  17,  63,   64,  65,
                                       255, 256, 257, 511, 513, 1000, 300, 33};
  struct Heads {
    PageType type;
    int heads;
    int kv_heads;
    int head_dim;
  };
  const Heads shapes[] = {
      {PageType::kBF16, 32, 8, 128}, {PageType::kFp8, 32, 8, 128}, {PageType::kBF16, 9, 3, 64},
      {PageType::kBF16, 32, 8, 64},  {PageType::kBF16, 4, 1, 256}, {PageType::kFp8, 4, 1, 256},
      {PageType::kBF16, 28, 4, 128}, {PageType::kFp8, 24, 2, 128}, {PageType::kBF16, 16, 16, 128},
      {PageType::kFp8, 9, 3, 64},    {PageType::kFp8, 32, 8, 64}};
  for (const Heads& h : shapes) {
    for (const int page : {16, 32, 128}) {
      if (quick && page == 128) continue;
      DecodeCase c = {h.type, h.heads, h.kv_heads, h.head_dim, page, ragged};
      check_case(report, c, static_cast<uint64_t>(page));
      if (page != 32) continue;
      c.window = 100;
      check_case(report, c, 7);
      c.soft_cap = 20;
      c.sinks = true;
      check_case(report, c, 8);
    }
  }
  check_invariance(report, {PageType::kBF16, 32, 8, 128, 16, ragged});
  check_invariance(report, {PageType::kFp8, 32, 8, 128, 16, ragged});
  check_invariance(report, {PageType::kFp8, 32, 8, 64, 16, ragged});
  if (quick) return;
  for (const PageType type : {PageType::kBF16, PageType::kFp8}) {
    check_case(report, {type, 32, 8, 128, 16, {32768, 9000, 2049}}, 1);
    check_case(report, {type, 32, 8, 128, 16, {8193, 1, 4096, 0, 0, 16383}}, 2);
    check_case(report, {type, 8, 2, 128, 16, std::vector<int32_t>(1024, 40)}, 2);
    std::vector<int32_t> many(256);
    for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i * 37 % 1500);
    check_case(report, {type, 32, 8, 128, 16, many}, 3);
    many[7] = 20000;  // in more than two blocks
    check_invariance(report, {type, 32, 8, 128, 16, many});
    check_invariance(report, {type, 32, 8, 128, 32, {8193, 20000, 4096, 5, 16383, 1024}});
  }
}

}  // namespace pelton::bench_cuda
