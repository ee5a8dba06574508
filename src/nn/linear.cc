#include "nn/linear.h"

#include "nn/must.h"

namespace pelton::nn {

Linear::Linear(WeightLoader& loader, const std::vector<Part>& parts, int64_t in_features, bool bias,
               bool transposed) {
  std::vector<WeightLoader::Part> matrices;
  std::vector<std::string> bias_names;
  std::vector<int64_t> bias_sizes;
  for (const Part& part : parts) {
    matrices.push_back({part.name + ".weight", part.out_features});
    bias_names.push_back(part.name + ".bias");
    bias_sizes.push_back(part.out_features);
    out_features_ += part.out_features;
  }
  weights_ = loader.matrices(matrices, in_features, transposed);
  if (bias) bias_ = loader.vectors(bias_names, bias_sizes);
}

Linear::Linear(const kernels::WeightMatrix& tied) : weights_{tied}, out_features_(tied.rows) {}

namespace {

ops::MatmulArgs product_of(const Input& x) {
  ops::MatmulArgs args;
  args.x = x.rows;
  if (x.norm == nullptr) return args;
  args.norm = true;
  args.norm_weight = x.norm->weight();
  args.norm_eps = x.norm->eps();
  return args;
}

}  // namespace

Tensor Linear::forward(ops::StepContext& context, const Input& x) const {
  const Tensor out = context.activation(x.rows.num_rows(), out_features_);
  forward_into(context, x, out);
  return out;
}

Tensor Linear::logits(ops::StepContext& context, const Tensor& x) const {
  const Tensor out = context.arena.rows(DType::kF32, x.num_rows(), out_features_);
  forward_into(context, x, out);
  return out;
}

Tensor Linear::gated(ops::StepContext& context, const Input& x, ops::Activation activation) const {
  const Tensor out = context.activation(x.rows.num_rows(), out_features_ / 2);
  ops::MatmulArgs product = product_of(x);
  product.weights = weights_;
  product.bias = bias_;
  product.out = out;
  must(ops::gated_matmul(context, {.product = product, .activation = activation}));
  return out;
}

void Linear::forward_into(ops::StepContext& context, const Input& x, const Tensor& out) const {
  ops::MatmulArgs product = product_of(x);
  product.weights = weights_;
  product.bias = bias_;
  product.out = out;
  must(ops::matmul(context, product));
}

void Linear::add_to(ops::StepContext& context, const Tensor& x, const Tensor& residual) const {
  must(ops::matmul(
      context, {.x = x, .weights = weights_, .bias = bias_, .out = residual, .accumulate = true}));
}

}  // namespace pelton::nn
