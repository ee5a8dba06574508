// Random bits of a counter (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA
// 2014): a pure function of key and counter, cheap enough for billions of weights, and the same on
// a host and on a device.
#pragma once

#include <cstdint>
#include <string_view>

namespace pelton {

constexpr uint64_t mix_bits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// One number of a sequence of them: digest = mixed(digest, next).
constexpr uint64_t mixed(uint64_t digest, uint64_t word) {
  return mix_bits((digest ^ word) + 0x9E3779B97F4A7C15ull);
}
constexpr uint64_t mixed(uint64_t digest, std::string_view text) {
  digest = mixed(digest, text.size());
  for (const char c : text) digest = mixed(digest, static_cast<uint64_t>(static_cast<uint8_t>(c)));
  return digest;
}

// Bits number `counter` of the stream `key`.
constexpr uint64_t counter_bits(uint64_t key, uint64_t counter) {
  return mix_bits(key + (counter + 1) * 0x9E3779B97F4A7C15ull);
}

// One of four numbers in 64 bits: of 2^16 evenly spaced ones in [-1, 1).
constexpr float signed_unit(uint64_t bits, int lane) {
  return static_cast<float>(static_cast<int16_t>(bits >> (16 * lane))) * 0x1p-15f;
}

}  // namespace pelton
