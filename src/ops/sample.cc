#include "ops/sample.h"

#include "base/check.h"
#include "kernels/params/device_kernels.h"

namespace pelton::ops {

bool can_sample(const kernels::DeviceKernels& kernels, int64_t vocab_size) {
  return kernels.sample != nullptr && kernels.take_tokens != nullptr &&
         vocab_size <= kernels::kSampleMaxVocab;
}

Status sample(StepContext& context, const SampleArgs& args) {
  check(context.device != nullptr && !context.planning(), "tokens are chosen here on a device");
  check(args.logits.num_rows() == std::ssize(args.requests), "one request a row of logits");
  if (args.requests.empty()) return {};
  return context.device->kernels.sample(
      {.logits = args.logits.f32(),
       .logits_stride = args.logits.row_stride,
       .rows = static_cast<int32_t>(args.requests.size()),
       .vocab_size = static_cast<int32_t>(args.logits.row_elements()),
       .row = context.device->inputs->twin(args.requests.data()),
       .tokens = args.tokens,
       .states = args.states},
      *context.device->stream);
}

Status take_tokens(StepContext& context, std::span<const int32_t> ids, const int32_t* tokens) {
  check(context.device != nullptr && !context.planning(), "tokens are taken on a device");
  return context.device->kernels.take_tokens(
      {.ids = const_cast<int32_t*>(context.device->inputs->twin(ids.data())),
       .tokens = tokens,
       .rows = std::ssize(ids)},
      *context.device->stream);
}

}  // namespace pelton::ops
