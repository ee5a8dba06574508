// Counter-based random numbers (Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC11). A draw is a pure function of its key and counter, so it does not depend on what
// else ran before it.
#pragma once

#include <array>
#include <cstdint>

namespace pelton {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 53 bits, for (seed, sequence, position, draw): `sequence` tells the
// completions of one request apart, `position` is the index of the token to be drawn, `draw` counts
// several draws for one token.
double uniform_random(uint64_t seed, uint32_t sequence, uint32_t position, uint32_t draw = 0);

// Small sequential generator over the same function, for tests, initialisation and noise.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint32_t next_u32();
  uint64_t next_u64() { return (uint64_t{next_u32()} << 32) | next_u32(); }
  // Uniform in [0, bound), bound > 0.
  uint64_t below(uint64_t bound) { return next_u64() % bound; }
  double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(uniform());
  }
  float normal();

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace pelton
