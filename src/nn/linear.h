// y = x W^T + b, where W may be several file tensors whose outputs lie side by side (query, key and
// value of a layer).
#pragma once

#include <string>
#include <vector>

#include "nn/norm.h"
#include "nn/weight_loader.h"
#include "ops/matmul.h"

namespace pelton::nn {

class Linear {
 public:
  struct Part {
    std::string name;  // without ".weight" / ".bias"
    int64_t out_features = 0;
  };

  Linear() = default;
  Linear(WeightLoader& loader, const std::vector<Part>& parts, int64_t in_features, bool bias,
         bool transposed = false);
  // A head that shares the embedding's matrix.
  explicit Linear(const kernels::WeightMatrix& tied);

  int64_t out_features() const { return out_features_; }

  // [T, in_features] -> [T, out_features], an activation in the step's arena.
  Tensor forward(ops::StepContext& context, const Input& x) const;
  // The same in f32 whatever the type of activations: an output head.
  Tensor logits(ops::StepContext& context, const Tensor& x) const;
  // [T, out_features / 2]: act(first half) * second half.
  Tensor gated(ops::StepContext& context, const Input& x, ops::Activation activation) const;
  void forward_into(ops::StepContext& context, const Input& x, const Tensor& out) const;
  // residual [T, out_features] += forward(x).
  void add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const;

 private:
  std::vector<kernels::WeightMatrix> weights_;
  const float* bias_ = nullptr;
  int64_t out_features_ = 0;
};

}  // namespace pelton::nn
