#include "nn/norm.h"

#include "nn/must.h"

namespace pelton::nn {

Tensor RmsNorm::forward(ops::StepContext& context, const Tensor& x) const {
  const Tensor out = context.activation(x.num_rows(), x.row_elements());
  must(ops::rms_norm(context, {.x = x, .weight = weight_, .eps = eps_, .out = out}));
  return out;
}

Input RmsNorm::of(const Tensor& x) const { return {x, *this}; }

void RmsNorm::add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const {
  must(ops::rms_norm(context,
                     {.x = x, .weight = weight_, .eps = eps_, .out = {}, .residual = &residual}));
}

Tensor LayerNorm::forward(ops::StepContext& context, const Tensor& x) const {
  const Tensor out = context.activation(x.num_rows(), x.row_elements());
  must(ops::layer_norm(context,
                       {.x = x, .weight = weight_, .bias = bias_, .eps = eps_, .out = out}));
  return out;
}

}  // namespace pelton::nn
