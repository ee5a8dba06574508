// What a sampling sequence asks of a device for its next token, with lists that lie in host memory.
#pragma once

#include <span>

#include "ops/sample.h"

namespace pelton::runtime {

struct SampleRequest {
  ops::SampleRow row;  // its lists are filled in from those below, where the step's inputs lie
  std::span<const ops::TokenBias> biases = {};
  std::span<const int32_t> suppressed = {};
  std::span<const ops::TokenCount> history = {};
  // The token that the row computes is output too, and not in `history`: it may not be known yet.
  bool counts_input = false;

  // Bytes of the step's inputs that so many entries take at most.
  static size_t list_bytes(size_t biases, size_t suppressed, size_t history) {
    constexpr size_t kPadding = 16;
    return biases * sizeof(ops::TokenBias) + suppressed * sizeof(int32_t) +
           history * sizeof(ops::TokenCount) + kPadding;
  }
};

}  // namespace pelton::runtime
