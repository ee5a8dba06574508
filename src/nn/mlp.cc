#include "nn/mlp.h"

#include "nn/must.h"

namespace pelton::nn {

Tensor GatedMlp::gated(ops::StepContext& context, const Input& x) const {
  const Tensor out = gate_up_.gated(context, x, activation_);
  context.trace("mlp.gated", out);
  return out;
}

void GatedMlp::add_to(ops::StepContext& context, const Input& x, const Tensor& residual) const {
  const memory::StepArena::Scope scope(context.arena);
  down_.add_to(context, gated(context, x), residual);
}

Tensor GatedMlp::forward(ops::StepContext& context, const Input& x) const {
  const Tensor out = context.activation(x.rows.num_rows(), down_.out_features());
  const memory::StepArena::Scope scope(context.arena);
  down_.forward_into(context, gated(context, x), out);
  return out;
}

void PlainMlp::add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const {
  const memory::StepArena::Scope scope(context.arena);
  const Tensor hidden = up_.forward(context, x);
  must(ops::activate(context, activation_, hidden));
  context.trace("mlp.activated", hidden);
  down_.add_to(context, hidden, residual);
}

}  // namespace pelton::nn
