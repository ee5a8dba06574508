// Row-wise kernels of one ISA level: norms, rotary embedding, activations, reductions over logits.
// All f32. A kernel handles one row (or one head of it), so a row's bits depend on that row alone.
#pragma once

#include <cstdint>

namespace pelton::kernels {

// One token's heads, rotated in place: the first 2 * rotary_half elements of each of `heads` heads.
struct RopeRow {
  float* x = nullptr;  // [heads, head_dim]
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_half = 0;
  const float* cosines = nullptr;  // [rotary_half]
  const float* sines = nullptr;    // [rotary_half]
};

// Where `collect_above` stands.
struct CollectState {
  int64_t next = 0;   // first element not yet looked at
  int32_t count = 0;  // ids collected so far
  int32_t capacity = 0;
};

// exp is one function everywhere: relative error below 2 units in the last place, 0 below -87.33,
// clamped above 88.37.
struct RowKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out) = nullptr;
  // residual += that.
  void (*rms_norm_add)(const float* x, const float* weight, int64_t n, float eps,
                       float* residual) = nullptr;
  // bias may be null; out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n, float eps,
                     float* out) = nullptr;
  void (*rope_halves)(const RopeRow& row) = nullptr;    // pairs (i, i + rotary_half)
  void (*rope_adjacent)(const RopeRow& row) = nullptr;  // pairs (2i, 2i + 1)
  // out = act(gate) * up, or act(gate) where up is null; in the order of ops::Activation: silu,
  // gelu, gelu_tanh, relu. out may be gate or up.
  void (*activate[4])(const float* gate, const float* up, int64_t n, float* out) = {};
  void (*soft_cap)(float* x, int64_t n, float cap) = nullptr;
  void (*add)(float* x, const float* y, int64_t n) = nullptr;
  // Largest element, NaN ignored; -infinity when there is none.
  float (*max)(const float* x, int64_t n) = nullptr;
  // Index of the first element >= bound, or n.
  int64_t (*find_at_least)(const float* x, int64_t n, float bound) = nullptr;
  // Sum of exp(x - max), added up in double.
  double (*sum_exp)(const float* x, int64_t n, float max) = nullptr;
  // Appends the indices of elements >= bound, ascending, until the row ends or fewer than 16 places
  // are left.
  void (*collect_above)(const float* x, int64_t n, float bound, int32_t* ids,
                        CollectState* state) = nullptr;
};

}  // namespace pelton::kernels
