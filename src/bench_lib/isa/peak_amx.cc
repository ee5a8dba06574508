#include <immintrin.h>

#include <array>
#include <cstring>

#include "bench_lib/isa/peak.h"

namespace pelton::bench_lib {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

// TDPBUSD on 16 x 64 tiles: 16 * 16 * 64 byte products an instruction, into four sums.
int64_t int8_peak_amx(int64_t iterations, int32_t* sink) {
  constexpr int64_t kProducts = 16 * 16 * 64;
  const TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) std::array<uint8_t, 16 * 64> bytes;
  std::memset(bytes.data(), *sink & 3, bytes.size());
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, bytes.data(), 64);
  _tile_loadd(5, bytes.data(), 64);
  _tile_loadd(6, bytes.data(), 64);
  _tile_loadd(7, bytes.data(), 64);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  alignas(64) std::array<int32_t, 16 * 16> sums;
  int32_t sum = 0;
  _tile_stored(0, sums.data(), 64);
  sum += sums[0];
  _tile_stored(1, sums.data(), 64);
  sum += sums[1];
  _tile_stored(2, sums.data(), 64);
  sum += sums[2];
  _tile_stored(3, sums.data(), 64);
  sum += sums[3];
  _tile_release();
  *sink = sum;
  return iterations * 4 * kProducts;
}

}  // namespace pelton::bench_lib
