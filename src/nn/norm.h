// Normalisation layers: weights and verb.
#pragma once

#include <string>

#include "nn/weight_loader.h"
#include "ops/elementwise.h"

namespace pelton::nn {

// RMSNorm, arXiv 1910.07467.
class RmsNorm {
 public:
  RmsNorm() = default;
  // `offset` is added to each weight: Gemma's safetensors store weight - 1.
  RmsNorm(WeightLoader& loader, const std::string& name, int64_t size, float eps,
          float offset = 0.0f)
      : weight_(loader.vector(name + ".weight", size, offset)), eps_(eps) {}

  Tensor forward(ops::StepContext& context, const Tensor& x) const;
  // norm(x) as what a layer multiplies.
  struct Input of(const Tensor& x) const;
  // residual += norm(x).
  void add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const;

  const float* weight() const { return weight_; }
  float eps() const { return eps_; }

 private:
  const float* weight_ = nullptr;
  float eps_ = 0.0f;
};

// What a layer multiplies: rows, or their RMS norms, which a kernel of the product may make itself.
struct Input {
  Input(const Tensor& x) : rows(x) {}
  Input(const Tensor& x, const RmsNorm& of) : rows(x), norm(&of) {}

  Tensor rows;  // [T, in_features]
  const RmsNorm* norm = nullptr;
};

class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(WeightLoader& loader, const std::string& name, int64_t size, float eps)
      : weight_(loader.vector(name + ".weight", size)),
        bias_(loader.vector(name + ".bias", size)),
        eps_(eps) {}

  Tensor forward(ops::StepContext& context, const Tensor& x) const;

 private:
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
  float eps_ = 0.0f;
};

}  // namespace pelton::nn
