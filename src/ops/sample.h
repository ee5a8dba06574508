// Choosing tokens where the logits are. On a device only; the CPU's pipeline is the sampling room.
#pragma once

#include <span>

#include "core/tensor.h"
#include "kernels/params/sampling.h"
#include "ops/step_context.h"
#include "pelton/status.h"

namespace pelton::ops {

using kernels::SampleRow;
using kernels::SampleState;
using kernels::TokenBias;
using kernels::TokenCount;

// Whether these kernels choose tokens of such a vocabulary.
bool can_sample(const kernels::DeviceKernels& kernels, int64_t vocab_size);

struct SampleArgs {
  Tensor logits;                        // f32 [rows, vocab_size]; may be overwritten
  std::span<const SampleRow> requests;  // one a row, in the step's inputs
  int32_t* tokens = nullptr;            // [rows], on the device
  SampleState* states = nullptr;        // [rows], on the device
};
Status sample(StepContext& context, const SampleArgs& args);

// Ids of the step (in its inputs) below 0 become tokens[-1 - id], where `tokens` are on the device.
Status take_tokens(StepContext& context, std::span<const int32_t> ids, const int32_t* tokens);

}  // namespace pelton::ops
