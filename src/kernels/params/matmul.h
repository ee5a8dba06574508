// Weight matrices and their products with activation rows. Shared by every backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace pelton::kernels {

// How the bytes of a weight matrix lie.
enum class WeightLayout : uint8_t {
  kSource,       // as in the model file: row after row of whole blocks
  kInterleaved,  // rows interleaved so that one vector lane is one output row; see docs/kernels.md
  // Quantized at load for a device; see kernels/params/device_weights.h. `format` says nothing
  // then.
  kFp8Channels,
  kInt8Channels,
  kInt4Groups,
};

// Multiplying float activations by quantized weights: exactly in float, or through 8-bit
// activations.
enum class ActivationPrecision : uint8_t { kInt8, kF32 };

// A weight matrix W [rows = output features, columns = input features] ready for the kernels. A
// view: the model's weight arena or a mapped file owns the bytes.
struct WeightMatrix {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  int64_t rows = 0;     // N
  int64_t columns = 0;  // K
  WeightFormat format = WeightFormat::kF32;
  WeightLayout layout = WeightLayout::kSource;
};

}  // namespace pelton::kernels
