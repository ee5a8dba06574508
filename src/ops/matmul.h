// Products of activation rows with weight matrices, and everything that turns a file's weight into
// the kernels' layout.
//
// Invariance: the bits of an output row depend on its input row and the weights only: not on the
// number of rows, the thread count or the tile a row falls into. So there is one accumulation order
// for each (format, ISA level, ActivationPrecision), used by decode- and prefill-shaped kernels
// alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "core/tensor.h"
#include "kernels/params/matmul.h"
#include "ops/elementwise.h"
#include "ops/step_context.h"
#include "pelton/status.h"

namespace pelton::ops {

// Layout in which the kernels of this machine want a matrix of this format, and its size. kSource
// means that the file's own bytes are used in place.
struct PackPlan {
  kernels::WeightLayout layout = kernels::WeightLayout::kSource;
  size_t bytes = 0;
};
PackPlan plan_pack(WeightFormat format, int64_t rows, int64_t columns);

// Rewrites the file's bytes of rows [0, rows) into `out` (plan_pack's size, 64-byte aligned).
// Values are kept exactly: unpacking gives the same dequantized numbers.
kernels::WeightMatrix pack(WeightFormat format, int64_t rows, int64_t columns,
                           std::span<const std::byte> source, std::span<std::byte> out,
                           ThreadPool& pool);
// The file's bytes as they are, for formats whose plan is kSource and for reference kernels.
kernels::WeightMatrix in_place(WeightFormat format, int64_t rows, int64_t columns,
                               std::span<const std::byte> source);

// One row, dequantized to `out` [columns]. Works for both layouts; exact.
void dequantize_row(const kernels::WeightMatrix& weight, int64_t row, float* out);

struct MatmulArgs {
  Tensor x;  // [M, K] of an activation type
  std::span<const kernels::WeightMatrix>
      weights;                  // each [N_i, K]; outputs lie side by side in `out`
  const float* bias = nullptr;  // [sum N_i]
  Tensor out;                   // [M, sum N_i] of an activation type, not necessarily of x's
  bool accumulate = false;      // out += product (a residual stream) instead of out = product
  // x is f32 and what is multiplied are the RMS norms of its rows, as rms_norm makes them.
  bool norm = false;
  const float* norm_weight = nullptr;  // [K]; null while planning
  float norm_eps = 0.0f;
};
Status matmul(StepContext& context, const MatmulArgs& args);

// out [M, sum N_i / 2] = act(gate) * up, where the product's first half is gate and its second up.
struct GatedMatmulArgs {
  MatmulArgs product;
  Activation activation = Activation::kSilu;
};
Status gated_matmul(StepContext& context, const GatedMatmulArgs& args);

struct EmbeddingArgs {
  const kernels::WeightMatrix* table;  // [vocab_size, hidden]
  // Each in [0, vocab_size): checked. On a device one below 0 was replaced there (take_tokens).
  std::span<const int32_t> ids;
  float scale = 1.0f;
  Tensor out;  // [ids.size(), hidden] of an activation type
};
Status embedding(StepContext& context, const EmbeddingArgs& args);

}  // namespace pelton::ops
