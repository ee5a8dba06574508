#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace pelton {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform_random(uint64_t seed, uint32_t sequence, uint32_t position, uint32_t draw) {
  const auto bits = philox4x32({position, sequence, draw, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

uint32_t Random::next_u32() {
  if (used_ == 4) {
    block_ =
        philox4x32({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), 0, 1},
                   {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    ++counter_;
    used_ = 0;
  }
  return block_[static_cast<size_t>(used_++)];
}

float Random::normal() {
  const double u = 1.0 - uniform();  // (0, 1]
  const double v = uniform();
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace pelton
