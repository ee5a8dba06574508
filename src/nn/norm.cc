#include "nn/norm.h"

#include "nn/must.h"

namespace pelton::nn {

Tensor RmsNorm::forward(ops::StepContext& context, const Tensor& x) const {
  const Tensor out = context.arena.rows(DType::kF32, x.num_rows(), x.row_elements());
  must(ops::rms_norm(context, {.x = x, .weight = weight_, .eps = eps_, .out = out}));
  return out;
}

void RmsNorm::in_place(ops::StepContext& context, const Tensor& x) const {
  must(ops::rms_norm(context, {.x = x, .weight = weight_, .eps = eps_, .out = x}));
}

void RmsNorm::add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const {
  must(ops::rms_norm(context,
                     {.x = x, .weight = weight_, .eps = eps_, .out = {}, .residual = &residual}));
}

Tensor LayerNorm::forward(ops::StepContext& context, const Tensor& x) const {
  const Tensor out = context.arena.rows(DType::kF32, x.num_rows(), x.row_elements());
  must(ops::layer_norm(context,
                       {.x = x, .weight = weight_, .bias = bias_, .eps = eps_, .out = out}));
  return out;
}

}  // namespace pelton::nn
