#include "bench_lib/roofline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench_lib/isa/peak.h"

namespace pelton::bench_lib {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums in eight lanes, so that loads and not one chain of additions set the pace.
uint64_t sum_words(const uint64_t* words, size_t count) {
  constexpr size_t kLanes = 32;
  std::array<uint64_t, kLanes> sums{};
  for (size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

double measure_read(ThreadPool& pool, size_t bytes, double seconds) {
  constexpr size_t kPiece = size_t{1} << 20;
  const auto pieces = static_cast<int64_t>(std::max<size_t>(bytes / kPiece, 1));
  std::vector<uint64_t> buffer(static_cast<size_t>(pieces) * kPiece / sizeof(uint64_t), 1);
  std::atomic<uint64_t> sink{0};
  const auto pass = [&] {
    const auto start = Clock::now();
    pool.parallel_for(pieces, [&](int64_t piece, int) {
      constexpr size_t kWords = kPiece / sizeof(uint64_t);
      sink += sum_words(&buffer[static_cast<size_t>(piece) * kWords], kWords);
    });
    return seconds_since(start);
  };
  pass();
  const auto start = Clock::now();
  double best = 1e300;
  do {
    best = std::min(best, pass());
  } while (seconds_since(start) < seconds);
  check(sink.load() > 0, "the reads happened");
  return static_cast<double>(pieces) * static_cast<double>(kPiece) / best;
}

PeakLoop peak_loop(IsaLevel isa) {
  switch (isa) {
    case IsaLevel::kGeneric:
      return int8_peak_generic;
    case IsaLevel::kAvx2:
      return int8_peak_avx2;
    case IsaLevel::kAvx512:
      return int8_peak_avx512;
    case IsaLevel::kAmx:
      return int8_peak_amx;
  }
  return int8_peak_generic;
}

double measure_int8(ThreadPool& pool, IsaLevel isa, double seconds) {
  constexpr int64_t kIterations = 100'000;
  const PeakLoop loop = peak_loop(isa);
  const int threads = pool.size();
  std::atomic<int64_t> products{0};
  std::atomic<int32_t> total{0};
  const auto pass = [&] {
    products = 0;
    const auto start = Clock::now();
    pool.parallel_for(threads, [&](int64_t item, int) {
      int32_t sink = static_cast<int32_t>(item) + 1;
      products += loop(kIterations, &sink);
      total ^= sink;
    });
    return static_cast<double>(products.load()) / seconds_since(start);
  };
  pass();
  const auto start = Clock::now();
  double best = 0;
  do {
    best = std::max(best, pass());
  } while (seconds_since(start) < seconds);
  return 2.0 * best;
}

size_t default_buffer() {
  constexpr size_t kLeast = size_t{256} << 20;
  constexpr size_t kMost = size_t{1} << 30;
  return std::clamp(4 * last_level_cache_bytes(), kLeast, kMost);
}

}  // namespace

size_t last_level_cache_bytes() {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    size_t number = 0;
    char unit = ' ';
    if (!(file >> number)) continue;
    file >> unit;
    const size_t scale = unit == 'K' ? size_t{1} << 10 : unit == 'M' ? size_t{1} << 20 : 1;
    largest = std::max(largest, number * scale);
  }
  return largest;
}

Roofline measure_roofline(ThreadPool& pool, IsaLevel isa, const RooflineOptions& options) {
  const size_t bytes = options.buffer_bytes == 0 ? default_buffer() : options.buffer_bytes;
  Roofline roofline;
  roofline.read_bytes_per_second = measure_read(pool, bytes, options.seconds);
  roofline.int8_ops_per_second = measure_int8(pool, isa, options.seconds);
  return roofline;
}

}  // namespace pelton::bench_lib
