// The device's half of every op: what is left to do once shapes are checked. Internal to ops.
// Those that need scratch are called in plan mode too.
#pragma once

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace pelton::ops::on_device {

Status rms_norm(StepContext& context, const RmsNormArgs& args);
Status layer_norm(StepContext& context, const LayerNormArgs& args);
// Fills `angles`; `inv_freq` is in device memory.
Status rope_angles(StepContext& context, std::span<const int32_t> positions,
                   std::span<const float> inv_freq, float magnitude, const RopeAngles& angles);
Status rope(StepContext& context, const Tensor& x, const RopeAngles& angles, RopePairing pairing);
// `up` is null for act(gate) alone.
Status activate(StepContext& context, Activation activation, const Tensor& gate, const Tensor* up,
                const Tensor& out);
Status soft_cap(StepContext& context, const Tensor& x, float cap);
Status add(StepContext& context, const Tensor& x, const Tensor& y);
Status gather_rows(StepContext& context, const Tensor& x, std::span<const int32_t> rows,
                   const Tensor& out);
Status matmul(StepContext& context, const MatmulArgs& args);
Status gated_matmul(StepContext& context, const GatedMatmulArgs& args);
Status embedding(StepContext& context, const EmbeddingArgs& args);
Status kv_append(StepContext& context, const KvAppendArgs& args);
// Whether one kernel does all of prepare_attention; else it is composed of other ops.
bool fuses_preparation(const StepContext& context, const PrepareArgs& args);
Status prepare_attention(StepContext& context, const PrepareArgs& args);
Status attention(StepContext& context, const AttentionArgs& args);

}  // namespace pelton::ops::on_device
