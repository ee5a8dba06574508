// Integer arithmetic on sizes that a file or a request chose: every result is proved or absent.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace pelton {

template <std::integral T>
std::optional<T> checked_add(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
std::optional<T> checked_mul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Smallest multiple of `alignment` that is >= value; absent on overflow or a zero alignment.
inline std::optional<uint64_t> checked_align(uint64_t value, uint64_t alignment) {
  if (alignment == 0) return std::nullopt;
  const uint64_t rest = value % alignment;
  return rest == 0 ? std::optional<uint64_t>(value) : checked_add(value, alignment - rest);
}

// Product of all factors, each of which must be positive and at most int64's maximum.
inline std::optional<uint64_t> checked_product(std::span<const int64_t> factors) {
  uint64_t product = 1;
  for (int64_t factor : factors) {
    if (factor <= 0) return std::nullopt;
    const auto next = checked_mul(product, static_cast<uint64_t>(factor));
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

// The value in the narrower type, absent when it does not fit.
template <std::integral To, std::integral From>
std::optional<To> checked_cast(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

}  // namespace pelton
