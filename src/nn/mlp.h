// Feed-forward layers.
#pragma once

#include <utility>

#include "nn/linear.h"
#include "ops/elementwise.h"

namespace pelton::nn {

// down(act(gate(x)) * up(x)), arXiv 2002.05202; gate and up are one fused product.
class GatedMlp {
 public:
  GatedMlp() = default;
  GatedMlp(Linear gate_up, Linear down, ops::Activation activation)
      : gate_up_(std::move(gate_up)), down_(std::move(down)), activation_(activation) {}

  void add_to(ops::StepContext& context, const Input& x, const Tensor& residual) const;
  Tensor forward(ops::StepContext& context, const Input& x) const;

 private:
  Tensor gated(ops::StepContext& context, const Input& x) const;
  Linear gate_up_;
  Linear down_;
  ops::Activation activation_ = ops::Activation::kSilu;
};

// down(act(up(x))).
class PlainMlp {
 public:
  PlainMlp() = default;
  PlainMlp(Linear up, Linear down, ops::Activation activation)
      : up_(std::move(up)), down_(std::move(down)), activation_(activation) {}

  void add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const;

 private:
  Linear up_;
  Linear down_;
  ops::Activation activation_ = ops::Activation::kGelu;
};

}  // namespace pelton::nn
