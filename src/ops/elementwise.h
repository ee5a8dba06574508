// Row-wise ops between the products: norms, rotary embedding, activations. Tensors are activations
// or the residual stream (StepContext::activation_type), in any mixture; each row's bits depend on
// that row.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/tensor.h"
#include "ops/step_context.h"
#include "pelton/status.h"

namespace pelton::ops {

// out = x / sqrt(mean(x^2) + eps) * weight, over the innermost dimension: [T, D] or, a head at a
// time, [T, H, D]. `out` may be `x`. With `residual` set: residual += that value, and `out` is not
// written (may be empty).
struct RmsNormArgs {
  Tensor x = {};
  const float* weight = nullptr;  // [D]
  float eps = 1e-6f;
  Tensor out = {};
  const Tensor* residual = nullptr;
};
Status rms_norm(StepContext& context, const RmsNormArgs& args);

// out = (x - mean) / sqrt(variance + eps) * weight + bias over [T, D].
struct LayerNormArgs {
  Tensor x = {};
  const float* weight = nullptr;  // [D]
  const float* bias = nullptr;    // [D] or null
  float eps = 1e-5f;
  Tensor out = {};
};
Status layer_norm(StepContext& context, const LayerNormArgs& args);

// Which two elements of a head rotate together.
enum class RopePairing {
  kHalves /* i and i + d/2: Hugging Face */,
  kAdjacent /* 2i and 2i + 1: GGUF llama */
};

// Angles of one step: cos and sin [T, rotary_dim / 2] f32, computed once a step and shared by the
// layers.
struct RopeAngles {
  Tensor cos;
  Tensor sin;
};
// angle = float(position) * inv_freq[i], both f32 as in the reference; cos and sin times
// `magnitude` (YaRN, LongRoPE). `inv_freq` lies where weights lie (on a device: in its memory).
Result<RopeAngles> rope_angles(StepContext& context, std::span<const int32_t> positions,
                               std::span<const float> inv_freq, float magnitude);
// Rotates the first rotary_dim elements of each head of x [T, H, D] in place.
Status rope(StepContext& context, const Tensor& x, const RopeAngles& angles, RopePairing pairing);

enum class Activation { kSilu, kGelu /* erf */, kGeluTanh, kRelu };
// out [T, F] = act(gate) * up; gate and up may be column ranges of one product.
Status gated_activation(StepContext& context, Activation activation, const Tensor& gate,
                        const Tensor& up, const Tensor& out);
// x = act(x), in place.
Status activate(StepContext& context, Activation activation, const Tensor& x);
// x = cap * tanh(x / cap), in place (Gemma).
Status soft_cap(StepContext& context, const Tensor& x, float cap);
// x += y.
Status add(StepContext& context, const Tensor& x, const Tensor& y);
// out[i] = x[rows[i]].
Status gather_rows(StepContext& context, const Tensor& x, std::span<const int32_t> rows,
                   const Tensor& out);

}  // namespace pelton::ops
