// How fast one thread multiplies bytes when nothing but arithmetic limits it: loops over registers,
// one for each kernel level, built with that level's instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pelton::bench_lib {

// Runs `iterations` of a loop body; returns the multiply-adds done. `sink` takes a value that
// depends on all of them, so that none can be left out.
using PeakLoop = int64_t (*)(int64_t iterations, int32_t* sink);

int64_t int8_peak_generic(int64_t iterations, int32_t* sink);
int64_t int8_peak_avx2(int64_t iterations, int32_t* sink);
int64_t int8_peak_avx512(int64_t iterations, int32_t* sink);
int64_t int8_peak_amx(int64_t iterations, int32_t* sink);

}  // namespace pelton::bench_lib
