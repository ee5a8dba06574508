// What this machine can do at most, measured: the limits that a benchmark's rows are held against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "runtime/backend.h"

namespace pelton::bench_lib {

struct Roofline {
  double read_bytes_per_second = 0;  // streaming reads of a buffer larger than the last cache
  double int8_ops_per_second = 0;    // multiply and add counted apart, as in "TOPS"
};

struct RooflineOptions {
  size_t buffer_bytes = 0;  // 0 = four times the last-level cache, at least 256 MiB, at most 1 GiB
  double seconds = 0.3;     // spent on each of the two figures
};

// With all threads of `pool` at once. Best of several passes, since interference only slows.
Roofline measure_roofline(ThreadPool& pool, IsaLevel isa, const RooflineOptions& options = {});

// Of a device: the bandwidth of its best copy, bytes read and written counted together.
// int8_ops_per_second is 0: not measured. kResourceExhausted where its memory is full.
Result<Roofline> measure_device_roofline(const runtime::Backend& backend);

// Size of the largest cache that this processor reports; 0 when unknown.
size_t last_level_cache_bytes();

}  // namespace pelton::bench_lib
