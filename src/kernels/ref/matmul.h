// The oracle of products: double accumulation over dequantized weights. Slow on purpose.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/params/matmul.h"

namespace pelton::kernels::ref {

// What 8-bit activation quantization makes of a row: blocks of 16, scale = max |x| / 127, codes
// rounded to nearest even. A block with a value that is not finite becomes NaN.
void round_trip_int8(std::span<const float> x, float* out);

// out[n] = sum over k of W[n, k] x[k], for all rows of W in either layout. `x` is what the kernel
// family multiplies: the row itself, or its round trip through 8 bits. `magnitude[n]` receives the
// sum of |W[n, k] x[k]|, the scale of the rounding error of any order of summation.
void product_row(const WeightMatrix& weight, std::span<const float> x, double* out,
                 double* magnitude);

}  // namespace pelton::kernels::ref
