// Block-quantized weights as GGUF files store them, decoded one block at a time. The slow, obvious
// form: the oracle for packing and for every product kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace pelton::kernels::ref {

// Values of the 16 codes of IQ4_NL and IQ4_XS, and twice those of MXFP4 (whose block scale is
// halved instead).
extern const int8_t kIq4Values[16];
extern const int8_t kFp4Values[16];

// 2^(exponent - 128): the scale of an MXFP4 block, with the factor 1/2 that kFp4Values needs.
float mxfp4_scale(uint8_t exponent);

// The eight 6-bit scales and minima of a Q4_K or Q5_K block, from its 12 bytes.
void unpack_scales_minima(const uint8_t* packed, uint8_t* scales, uint8_t* minima);
// The sixteen 6-bit scales of a Q3_K block, biased by 32, from its 12 bytes.
void unpack_scales_q3(const uint8_t* packed, uint8_t* scales);

// Decodes `elements` values (whole blocks) of any format. Products and differences are rounded to
// f32 once each, as in the format's definition: scale * code, then minus the minimum.
void dequantize(WeightFormat format, const std::byte* source, int64_t elements, float* out);

}  // namespace pelton::kernels::ref
