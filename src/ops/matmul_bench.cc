// Times products of real layer shapes against the read bandwidth and the integer multiply rate of
// the same run.
//   pelton_matmul_bench [--threads N] [--filter TEXT] [--rows 1,512] [--f32] [--isa NAME]
// Columns: time of one call (best of several), weight bytes over time and its share of the measured
// bandwidth, multiply-adds per second.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "ops/matmul.h"
#include "ops/matmul_cases.h"

namespace pelton::ops {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Buffer {
  explicit Buffer(size_t size)
      : bytes((size + 4095) / 4096 * 4096),
        data(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {
    std::memset(data, 0, bytes);
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  size_t bytes;
  std::byte* data;
};

// Best of several passes over memory that no cache holds, GB/s.
double read_bandwidth(ThreadPool& pool) {
  const Buffer buffer(size_t{512} << 20);
  constexpr size_t kChunk = 1 << 20;
  double best = 0;
  for (int pass = 0; pass < 6; ++pass) {
    std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 8);
    const auto start = Clock::now();
    pool.parallel_for(static_cast<int64_t>(buffer.bytes / kChunk), [&](int64_t i, int thread) {
      const std::byte* p = buffer.data + static_cast<size_t>(i) * kChunk;
      uint64_t lanes[8] = {};
      for (size_t at = 0; at < kChunk; at += 64) {
        uint64_t line[8];
        std::memcpy(line, p + at, sizeof(line));
        for (int l = 0; l < 8; ++l) lanes[l] += line[l];
      }
      for (const uint64_t lane : lanes) sums[static_cast<size_t>(thread) * 8] += lane;
    });
    const double seconds = seconds_since(start);
    best = std::max(best, static_cast<double>(buffer.bytes) / seconds / 1e9);
    if (sums[0] == 1) fmt::print("\n");  // keeps the sums alive
  }
  return best;
}

struct Options {
  int threads = available_threads();
  std::string filter;
  std::vector<int64_t> rows = {1, 512};
  IsaLevel level = cpu_features().best_level();
  kernels::ActivationPrecision precision = kernels::ActivationPrecision::kInt8;
};

void measure(const LayerShape& shape, int64_t m, const Options& options, ThreadPool& pool,
             double bandwidth) {
  const PackPlan plan = plan_pack(shape.format, shape.rows, shape.columns);
  // Copies of the matrix in turn, so that at M = 1 weights come from memory as in a real step.
  const size_t copies =
      m >= 64 ? 1 : std::clamp<size_t>((size_t{512} << 20) / plan.bytes + 1, 1, 4000);
  const Buffer packed(plan.bytes * copies);
  Random rng(1);
  const std::vector<std::byte> source =
      random_weight(shape.format, shape.rows, shape.columns, 0.05f, rng);
  std::vector<kernels::WeightMatrix> weights;
  for (size_t i = 0; i < copies; ++i) {
    const std::span<std::byte> out(packed.data + i * plan.bytes, plan.bytes);
    if (plan.layout == kernels::WeightLayout::kInterleaved) {
      weights.push_back(pack(shape.format, shape.rows, shape.columns, source, out, pool));
    } else {
      std::memcpy(out.data(), source.data(), plan.bytes);
      weights.push_back(in_place(shape.format, shape.rows, shape.columns, out));
    }
  }
  std::vector<float> x(static_cast<size_t>(m * shape.columns));
  for (float& v : x) v = rng.uniform(-1.0f, 1.0f);
  std::vector<float> out(static_cast<size_t>(m * shape.rows));
  const Buffer scratch(static_cast<size_t>(m * shape.columns) * 4 + (1 << 20));
  memory::StepArena arena(std::span(scratch.data, scratch.bytes));
  StepContext context{arena, pool, kernels::kernels_for(options.level), options.precision};
  const auto run = [&](size_t i) {
    MatmulArgs args;
    args.x = Tensor::rows(x.data(), DType::kF32, m, shape.columns);
    args.weights = std::span(&weights[i % copies], 1);
    args.out = Tensor::rows(out.data(), DType::kF32, m, shape.rows);
    (void)matmul(context, args).ok();
  };
  run(0);
  double best = std::numeric_limits<double>::max();
  size_t next = 0;
  const auto begin = Clock::now();
  do {
    const size_t calls = m >= 64 ? 1 : copies;
    const auto start = Clock::now();
    for (size_t i = 0; i < calls; ++i) run(next++);
    best = std::min(best, seconds_since(start) / static_cast<double>(calls));
  } while (seconds_since(begin) < 0.4);
  const double gbs = static_cast<double>(plan.bytes) / best / 1e9;
  const double macs = static_cast<double>(m * shape.rows) * static_cast<double>(shape.columns);
  fmt::print("{:<14} {:<7} {:>7} {:>5} {:>5} {:>10.1f} {:>7.2f} {:>6.1f} {:>8.1f}\n", shape.name,
             weight_format_name(shape.format), shape.rows, shape.columns, m, best * 1e6, gbs,
             100 * gbs / bandwidth, macs / best / 1e9);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--f32") {
      options.precision = kernels::ActivationPrecision::kF32;
      continue;
    }
    ++i;
    if (name == "--threads") options.threads = std::max(1, std::atoi(value));
    if (name == "--filter") options.filter = value;
    if (name == "--rows") {
      options.rows.clear();
      for (const char* p = value; p != nullptr; p = std::strchr(p, ',')) {
        if (*p == ',') ++p;
        options.rows.push_back(std::max(1, std::atoi(p)));
      }
    }
    if (name == "--isa") {
      for (const IsaLevel level :
           {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
        if (std::string_view(value) == isa_level_name(level)) options.level = level;
      }
    }
  }
  return options;
}

}  // namespace
}  // namespace pelton::ops

int main(int argc, char** argv) {
  using namespace pelton;
  const ops::Options options = ops::parse(argc, argv);
  ThreadPool pool(options.threads);
  const double bandwidth = ops::read_bandwidth(pool);
  fmt::print("{} · {} · {} threads · read bandwidth {:.1f} GB/s\n", cpu_features().model_name,
             isa_level_name(options.level), options.threads, bandwidth);
  fmt::print("{:<14} {:<7} {:>7} {:>5} {:>5} {:>10} {:>7} {:>6} {:>8}\n", "layer", "format", "N",
             "K", "M", "us", "GB/s", "%read", "GMAC/s");
  for (const int64_t m : options.rows) {
    for (const ops::LayerShape& shape : ops::kLayerShapes) {
      const std::string name = std::string(shape.name) + " " + weight_format_name(shape.format);
      if (name.find(options.filter) == std::string::npos) continue;
      ops::measure(shape, m, options, pool, bandwidth);
    }
  }
  return 0;
}
