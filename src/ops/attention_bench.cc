// Attention against a blocked, threaded, vectorised kernel that is not fused (prefill), and as
// memory bandwidth (decode). Pairs are interleaved, so that a busy machine slows both alike.
//
//   pelton_attention_bench [threads]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_unfused.h"
#include "ops/op_harness.h"

namespace pelton::ops {
namespace {

using kernels::KvFormat;

// One thread is timed by its own CPU time, which a busy machine does not stretch.
bool use_cpu_time = false;
double seconds() {
  if (use_cpu_time) {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + std::ssize(v) / 2);
  return v[v.size() / 2];
}

struct Shape {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
};

// Pages of one sequence of `tokens`, filled through kv_append.
struct Filled {
  Filled(OpHarness& harness, const Shape& shape, KvFormat format, int64_t tokens, int layers = 1)
      : keys(Matrix::normal(tokens, shape.kv_heads * shape.head_dim, 1)),
        values(Matrix::normal(tokens, shape.kv_heads * shape.head_dim, 2)) {
    constexpr int32_t kBlockTokens = 32;
    const auto half = static_cast<size_t>(kBlockTokens * shape.kv_heads *
                                          kernels::kv_head_token_bytes(format, shape.head_dim));
    const auto count = static_cast<size_t>((tokens + kBlockTokens - 1) / kBlockTokens);
    const size_t block_bytes = 2 * half * static_cast<size_t>(layers);
    memory.resize(block_bytes * count + 64);
    std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    blocks.resize(count);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<int32_t> slots(static_cast<size_t>(tokens));
    std::iota(slots.begin(), slots.end(), 0);
    for (int i = 0; i < layers; ++i) {
      views.push_back({.keys = base + 2 * half * static_cast<size_t>(i),
                       .values = base + 2 * half * static_cast<size_t>(i) + half,
                       .block_bytes = block_bytes,
                       .block_tokens = kBlockTokens,
                       .num_kv_heads = shape.kv_heads,
                       .head_dim = shape.head_dim,
                       .format = format});
      (void)kv_append(harness.context(), {.keys = keys.tensor(),
                                          .values = values.tensor(),
                                          .slots = slots,
                                          .cache = views.back()});
    }
  }
  Matrix keys;
  Matrix values;
  std::vector<std::byte> memory;
  std::vector<int32_t> blocks;
  std::vector<kernels::KvLayerView> views;
};

void attend(OpHarness& harness, const Shape& shape, const Filled& kv, int layer, Matrix& queries,
            int32_t context_len, Matrix& out) {
  const kernels::SequenceSlice slice{0, static_cast<int32_t>(queries.rows), context_len,
                                     kv.blocks.data()};
  (void)attention(harness.context(),
                  {.queries = queries.tensor().heads(shape.heads, shape.head_dim),
                   .cache = kv.views[static_cast<size_t>(layer)],
                   .sequences = {&slice, 1},
                   .variant = {.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))},
                   .out = out.tensor()});
}

void bench_prefill(const Shape& shape, int threads) {
  constexpr int64_t kTokens = 1056;  // the first multiple of the baseline's row block from 1024 on
  OpHarness harness(cpu_features().best_level(), threads);
  const Filled kv(harness, shape, KvFormat::kF16, kTokens);
  Matrix queries = Matrix::normal(kTokens, shape.heads * shape.head_dim, 3);
  Matrix out(kTokens, queries.columns);
  Matrix unfused_out = out;
  const int64_t d = shape.head_dim;
  std::vector<float> keys(static_cast<size_t>(kTokens * shape.kv_heads * d));
  std::vector<float> values = keys;
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < d; ++i) {
        const auto from = static_cast<size_t>(t * shape.kv_heads * d + h * d + i);
        keys[static_cast<size_t>(((h * kTokens / 16 + t / 16) * d + i) * 16 + t % 16)] =
            f16_to_f32(f32_to_f16(kv.keys.values[from]));
        values[static_cast<size_t>((h * kTokens + t) * d + i)] =
            f16_to_f32(f32_to_f16(kv.values.values[from]));
      }
    }
  }
  std::vector<float> scores(static_cast<size_t>(shape.heads * kTokens * kTokens));
  ThreadPool pool(threads);
  const UnfusedAttention unfused{.queries = queries.values.data(),
                                 .keys = keys.data(),
                                 .values = values.data(),
                                 .scores = scores.data(),
                                 .out = unfused_out.values.data(),
                                 .tokens = kTokens,
                                 .heads = shape.heads,
                                 .kv_heads = shape.kv_heads,
                                 .head_dim = d,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(d))};
  std::vector<double> ratios;
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    const double start = seconds();
    attend(harness, shape, kv, 0, queries, kTokens, out);
    const double middle = seconds();
    unfused_attention_avx2(unfused, pool);
    const double end = seconds();
    if (i == 0) continue;  // first touch
    ratios.push_back((end - middle) / (middle - start));
    times.push_back(middle - start);
  }
  double difference = 0;
  for (size_t i = 0; i < out.values.size(); ++i) {
    difference = std::max(difference, std::fabs(double{out.values[i]} - unfused_out.values[i]));
  }
  const double flops = 2.0 * static_cast<double>(shape.heads * d * kTokens * (kTokens + 1));
  fmt::print(
      "prefill {} tokens, {} heads, {} KV heads of {}: {:.2f} ms, {:.1f} GFLOP/s, {:.2f}x unfused "
      "(from {:.2f} to {:.2f}); outputs differ by {:.1e}\n",
      kTokens, shape.heads, shape.kv_heads, shape.head_dim, 1e3 * median(times),
      flops / median(times) * 1e-9, median(ratios), *std::ranges::min_element(ratios),
      *std::ranges::max_element(ratios), difference);
}

// A plain read of as many bytes on as many threads.
double read_bandwidth(const std::vector<std::byte>& memory, ThreadPool& pool) {
  std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 64);
  constexpr size_t kPiece = size_t{1} << 16;
  const size_t pieces = memory.size() / kPiece;
  const double start = seconds();
  pool.parallel_for(static_cast<int64_t>(pieces), [&](int64_t item, int thread) {
    const auto* p =
        reinterpret_cast<const uint64_t*>(memory.data() + static_cast<size_t>(item) * kPiece);
    uint64_t sum[8] = {};
    for (size_t i = 0; i < kPiece / 8; i += 8) {
      for (size_t k = 0; k < 8; ++k) sum[k] ^= p[i + k];
    }
    for (const uint64_t s : sum) sums[static_cast<size_t>(thread) * 64] ^= s;
  });
  return static_cast<double>(pieces * kPiece) / (seconds() - start);
}

void bench_decode(const Shape& shape, KvFormat format, int threads) {
  constexpr int64_t kTokens = 4096;
  OpHarness harness(cpu_features().best_level(), threads);
  const int64_t layer_bytes =
      2 * kTokens * shape.kv_heads * kernels::kv_head_token_bytes(format, shape.head_dim);
  const int layers = static_cast<int>(std::max<int64_t>(1, (int64_t{96} << 20) / layer_bytes));
  const Filled kv(harness, shape, format, kTokens, layers);
  Matrix queries = Matrix::normal(1, shape.heads * shape.head_dim, 3);
  Matrix out(1, queries.columns);
  ThreadPool pool(threads);
  std::vector<double> rates;
  std::vector<double> shares;
  for (int i = 0; i < 9; ++i) {
    const double start = seconds();
    for (int layer = 0; layer < layers; ++layer) {
      attend(harness, shape, kv, layer, queries, kTokens, out);
    }
    const double rate = static_cast<double>(layer_bytes * layers) / (seconds() - start);
    rates.push_back(rate);
    shares.push_back(rate / read_bandwidth(kv.memory, pool));
  }
  fmt::print(
      "decode at {}, {} heads, {} KV heads of {}, {} pages: {:.1f} GB/s of KV, {:.0f}% of "
      "plain reading\n",
      kTokens, shape.heads, shape.kv_heads, shape.head_dim, kernels::kv_format_name(format),
      median(rates) * 1e-9, 100 * median(shares));
}

}  // namespace

void run_attention_bench(int threads) {
  use_cpu_time = threads == 1;
  constexpr Shape kShapes[] = {{9, 3, 64}, {12, 2, 128}, {4, 1, 256}};
  if (has_level(IsaLevel::kAvx2)) {
    for (const Shape& shape : kShapes) bench_prefill(shape, threads);
  }
  for (const Shape& shape : kShapes) {
    for (const KvFormat format :
         {KvFormat::kF32, KvFormat::kF16, KvFormat::kFp8, KvFormat::kInt8}) {
      bench_decode(shape, format, threads);
    }
  }
}

}  // namespace pelton::ops

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  pelton::ops::run_attention_bench(argc > 1 ? std::atoi(argv[1]) : pelton::available_threads());
}
