// paged_prefill against double precision over head shapes, page sizes, ragged steps and variants,
// and equal bits of a row however its prompt is cut and whatever the batch.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "paged_decode_cases.h"
#include "paged_prefill_cases.h"

namespace pelton::bench_cuda {

namespace {

using kernels::SequenceSlice;
using kernels::cuda::PagedPrefillArgs;
using kernels::cuda::PageType;

__device__ double element(const void* pages, PageType type, int64_t at) {
  return type == PageType::kBF16
             ? static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(pages)[at]))
             : static_cast<double>(float(static_cast<const __nv_fp8_e4m3*>(pages)[at]));
}

// One block a (row, head); thread d owns dim d, every thread walks all keys.
__global__ void reference_kernel(PagedPrefillArgs a, double* answers, double* magnitudes) {
  const int row = static_cast<int>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) % a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const int dim = static_cast<int>(threadIdx.x);
  int sequence = a.num_sequences - 1;
  while (sequence > 0 && a.sequences[sequence].first_row > row) --sequence;
  const SequenceSlice s = a.sequences[sequence];
  const int32_t* blocks =
      reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(s.blocks) + a.table_shift);
  const int position = s.context_len - s.num_rows + row - s.first_row;
  const int first = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const __nv_bfloat16* q =
      static_cast<const __nv_bfloat16*>(a.q) + row * a.q_stride + head * a.head_dim;
  const int64_t element_bytes = a.page_type == PageType::kBF16 ? 2 : 1;
  __shared__ double parts[256];
  double maximum = a.sinks != nullptr ? a.sinks[head] : -INFINITY;
  double sum = a.sinks != nullptr ? 1 : 0;
  double value = 0;
  double magnitude = 0;
  for (int key = first; key <= position; ++key) {
    const int64_t at =
        blocks[key / a.block_tokens] * a.block_stride / element_bytes +
        (static_cast<int64_t>(kv_head) * a.block_tokens + key % a.block_tokens) * a.head_dim + dim;
    parts[dim] = static_cast<double>(__bfloat162float(q[dim])) * element(a.keys, a.page_type, at);
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
    const double v = element(a.values, a.page_type, at) * a.value_scale;
    sum = sum * rescale + weight;
    value = value * rescale + weight * v;
    magnitude = magnitude * rescale + weight * fabs(v);
    maximum = highest;
  }
  const int64_t to = static_cast<int64_t>(blockIdx.x) * a.head_dim + dim;
  answers[to] = value / sum;
  magnitudes[to] = magnitude / sum;
}

std::string describe(const PrefillCase& c) {
  return std::string("prefill ") + (c.pages.type == PageType::kFp8 ? "fp8" : "bf16") + " heads " +
         std::to_string(c.pages.heads) + "/" + std::to_string(c.pages.kv_heads) + " dim " +
         std::to_string(c.pages.head_dim) + " page " + std::to_string(c.pages.block_tokens) +
         " sequences " + std::to_string(c.rows.size()) + " first rows " +
         std::to_string(c.rows.empty() ? 0 : c.rows[0]) + " of " +
         std::to_string(c.rows.empty() ? 0 : c.pages.lengths[0]) + " window " +
         std::to_string(c.pages.window) + (c.pages.soft_cap > 0 ? " cap" : "") +
         (c.pages.sinks ? " sinks" : "");
}

std::vector<uint16_t> run(const PrefillBatch& b, const std::string& what) {
  require(cudaMemset(b.out.as<void>(), 0xff, b.out.bytes()), "poison");
  require(kernels::cuda::launch_paged_prefill(b.args, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  return download<uint16_t>(b.out, b.out.bytes() / 2);
}

void check_case(Report& report, const PrefillCase& c, uint64_t seed) {
  const PrefillBatch b = make_prefill_batch(c, 1, seed);
  const std::string what = describe(c);
  const std::vector<uint16_t> got = run(b, what);
  const size_t count = static_cast<size_t>(b.args.rows) * static_cast<size_t>(b.args.heads) *
                       static_cast<size_t>(b.args.head_dim);
  Buffer answers(count * 8);
  Buffer magnitudes(count * 8);
  reference_kernel<<<static_cast<unsigned>(b.args.rows * b.args.heads),
                     static_cast<unsigned>(b.args.head_dim)>>>(b.args, answers.as<double>(),
                                                               magnitudes.as<double>());
  require(cudaGetLastError(), "reference");
  require(cudaDeviceSynchronize(), "reference");
  const std::vector<double> expected = download<double>(answers, count);
  const std::vector<double> magnitude = download<double>(magnitudes, count);
  double worst = 0;
  bool kept = true;
  for (size_t i = 0; i < got.size(); ++i) {
    if (i >= count) {  // past the rows
      kept = kept && got[i] == 0xffff;
      continue;
    }
    const uint32_t bits = static_cast<uint32_t>(got[i]) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    // Rounding of the result and of each weight; the scores' errors are far below.
    const double allowed =
        std::ldexp(std::fabs(expected[i]), -8) + std::ldexp(magnitude[i], -8) + 1e-30;
    const double error = std::fabs(value - expected[i]) / allowed;
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  check(report, worst <= 1, what + ": error " + std::to_string(worst) + " of the bound");
  check(report, kept, what + ": wrote rows that are not its own");
  check(report, got == run(b, what), what + ": a second run differs");
}

// The bits of a prompt's rows in one step are those of the same rows in chunks, alone and in
// company.
void check_invariance(Report& report, const DecodeCase& pages, const std::vector<int>& chunks) {
  PrefillCase c;
  c.pages = pages;
  int total = 0;
  for (const int chunk : chunks) total += chunk;
  c.pages.lengths = {300, total, 77};
  c.rows = {200, total, 77};
  const PrefillBatch whole = make_prefill_batch(c, 1, 11);
  const std::string what = describe(c);
  const std::vector<uint16_t> together = run(whole, what);
  const std::vector<SequenceSlice> slices = whole.slices;
  Buffer out(whole.out.bytes());
  int done = 0;
  for (const int chunk : chunks) {
    SequenceSlice slice = slices[1];
    slice.first_row = 0;
    slice.num_rows = chunk;
    slice.context_len = done + chunk;
    const Buffer one = upload_slices({slice});
    PagedPrefillArgs a = whole.args;
    const int64_t row = slices[1].first_row + done;
    a.q = static_cast<const char*>(a.q) + row * a.q_stride * 2;
    a.out = out.as<char>() + row * a.out_stride * 2;
    a.rows = chunk;
    a.sequences = one.as<SequenceSlice>();
    a.num_sequences = 1;
    require(kernels::cuda::launch_paged_prefill(a, nullptr), what.c_str());
    require(cudaDeviceSynchronize(), what.c_str());
    done += chunk;
  }
  const std::vector<uint16_t> apart = download<uint16_t>(out, out.bytes() / 2);
  const size_t row = static_cast<size_t>(pages.heads) * static_cast<size_t>(pages.head_dim);
  const auto first = static_cast<std::ptrdiff_t>(row * 200);
  const auto last = static_cast<std::ptrdiff_t>(row * static_cast<size_t>(200 + total));
  check(report,
        std::equal(together.begin() + first, together.begin() + last, apart.begin() + first),
        what + ": bits differ from those of chunks");
}

}  // namespace

void check_paged_prefill(Report& report, bool quick) {
  const DecodeCase shapes[] = {
      {PageType::kBF16, 32, 8, 128}, {PageType::kBF16, 9, 3, 64},   {PageType::kBF16, 32, 8, 64},
      {PageType::kBF16, 4, 1, 256},  {PageType::kBF16, 28, 4, 128}, {PageType::kBF16, 4, 4, 128},
      {PageType::kFp8, 32, 8, 128},  {PageType::kFp8, 9, 3, 64},    {PageType::kFp8, 4, 1, 256}};
  for (const DecodeCase& shape : shapes) {
    for (const int page : {16, 32, 128, 48}) {
      if (quick && page > 16) continue;
      PrefillCase c;
      c.pages = shape;
      c.pages.block_tokens = page;
      c.pages.lengths = {130, 1, 64, 500, 257, 333};
      c.rows = {130, 1, 64, 1, 100, 333};
      check_case(report, c, static_cast<uint64_t>(page));
      if (page != 32 && !quick) continue;
      c.pages.window = 100;
      check_case(report, c, 7);
      c.pages.soft_cap = 20;
      c.pages.sinks = true;
      check_case(report, c, 8);
    }
    if (quick) continue;
    check_invariance(report, shape, {256, 1, 200, 243});
    check_invariance(report, shape, {64, 636});
  }
  if (quick) return;
  for (const PageType type : {PageType::kBF16, PageType::kFp8}) {
    PrefillCase c;
    c.pages.type = type;
    c.pages.lengths = {2048, 1900};
    c.rows = {2048, 33};
    check_case(report, c, 1);
    c.pages.lengths.assign(300, 70);
    c.rows.assign(300, 9);
    c.rows[5] = 1;
    check_case(report, c, 2);
  }
}

}  // namespace pelton::bench_cuda
