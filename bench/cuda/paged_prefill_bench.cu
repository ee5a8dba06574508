// Times of causal prefill attention, 16k tokens in all (one sequence from 16k on), head dim 128:
// with 32 KV heads, as published figures have it, and with the 8 of an 8B model. Operations of the
// masked half are not counted.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "paged_prefill_cases.h"

namespace pelton::bench_cuda {

namespace {

struct Point {
  int sequences;
  int rows;
  int context;
};

Timed time_batch(const PrefillBatch& b, const PrefillCase& c, const Point& point,
                 const std::string& suffix) {
  Timed t;
  const double before = point.context - point.rows;
  const double pairs = point.sequences * (point.rows * before + point.rows * (point.rows / 2.0));
  const bool is_fp8 = c.pages.type == kernels::cuda::PageType::kFp8;
  t.row = {"paged_prefill",
           std::string(is_fp8 ? "fp8" : "bf16") + " " + std::to_string(point.sequences) + "x" +
               std::to_string(point.rows) +
               (point.rows < point.context ? " of " + std::to_string(point.context) : "") + suffix,
           "pelton",
           0,
           0,
           2.0 * point.sequences * point.context * c.pages.kv_heads * c.pages.head_dim *
               (is_fp8 ? 1 : 2),
           4.0 * pairs * c.pages.heads * c.pages.head_dim};
  t.launches = 4;
  t.record = [&b](cudaStream_t stream) {
    for (int i = 0; i < 4; ++i) {
      require(kernels::cuda::launch_paged_prefill(b.args, stream), "launch");
    }
  };
  return t;
}

}  // namespace

void bench_paged_prefill(Report& report) {
  using kernels::cuda::PageType;
  const Point points[] = {{16, 1024, 1024},  {8, 2048, 2048},   {4, 4096, 4096},  {2, 8192, 8192},
                          {1, 16384, 16384}, {1, 32768, 32768}, {1, 2048, 16384}, {1, 512, 8192}};
  struct Heads {
    PageType type;
    int heads;
    int kv_heads;
    int head_dim;
    int block_tokens;
  };
  const Heads shapes[] = {{PageType::kBF16, 32, 32, 128, 16}, {PageType::kBF16, 32, 8, 128, 16},
                          {PageType::kBF16, 32, 8, 128, 128}, {PageType::kFp8, 32, 8, 128, 16},
                          {PageType::kBF16, 32, 8, 64, 16},   {PageType::kBF16, 16, 4, 256, 16}};
  for (const Point& point : points) {
    std::vector<Timed> cases;
    std::vector<std::unique_ptr<PrefillBatch>> batches;
    for (const Heads& h : shapes) {
      PrefillCase c;
      c.pages.type = h.type;
      c.pages.heads = h.heads;
      c.pages.kv_heads = h.kv_heads;
      c.pages.head_dim = h.head_dim;
      c.pages.block_tokens = h.block_tokens;
      c.pages.lengths.assign(static_cast<size_t>(point.sequences), point.context);
      c.rows.assign(static_cast<size_t>(point.sequences), point.rows);
      batches.push_back(std::make_unique<PrefillBatch>(make_prefill_batch(c, 1, 3)));
      if (!supports(batches.back()->args)) continue;
      cases.push_back(time_batch(*batches.back(), c, point,
                                 " kv" + std::to_string(h.kv_heads) + " d" +
                                     std::to_string(h.head_dim) + " page" +
                                     std::to_string(h.block_tokens)));
    }
    time_interleaved(cases, 5, report);
  }
}

}  // namespace pelton::bench_cuda
