#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "ops/device_ops.h"

namespace pelton::ops {
namespace {

// Below this many elements waking the other threads costs more than the work.
constexpr int64_t kSerialElements = 16384;

// Calls row(t) for each row, on all threads when the whole is large enough.
template <typename Row>
void for_each_row(StepContext& context, int64_t rows, int64_t row_elements, const Row& row) {
  if (rows <= 1 || rows * row_elements < kSerialElements) {
    for (int64_t t = 0; t < rows; ++t) row(t);
    return;
  }
  const int64_t rows_per_item = std::max<int64_t>(1, kSerialElements / 4 / row_elements);
  const int64_t items = (rows + rows_per_item - 1) / rows_per_item;
  context.pool.parallel_for(items, [&](int64_t item, int /*thread*/) {
    const int64_t end = std::min(rows, (item + 1) * rows_per_item);
    for (int64_t t = item * rows_per_item; t < end; ++t) row(t);
  });
}

// Activations are f32, or bf16 on a device.
void check_type(const StepContext& context, const Tensor& t) {
  check(t.dtype == DType::kF32 || (t.dtype == DType::kBF16 && context.device != nullptr),
        "tensor is not of an activation type");
}

void check_same_shape(const StepContext& context, const Tensor& a, const Tensor& b) {
  check_type(context, a);
  check_type(context, b);
  check(a.num_rows() == b.num_rows() && a.row_elements() == b.row_elements(),
        "tensors differ in shape");
}

int64_t innermost(const Tensor& t) {
  check(t.rank == 2 || t.rank == 3, "rows need a tensor of rank 2 or 3");
  return t.shape[static_cast<size_t>(t.rank - 1)];
}

}  // namespace

Status rms_norm(StepContext& context, const RmsNormArgs& args) {
  check_type(context, args.x);
  const Tensor& target = args.residual != nullptr ? *args.residual : args.out;
  check_same_shape(context, args.x, target);
  check(args.weight != nullptr || context.planning(), "rms_norm needs a weight");
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::rms_norm(context, args);
  const int64_t d = innermost(args.x);
  const int64_t norms = args.x.row_elements() / std::max<int64_t>(d, 1);
  const bool add = args.residual != nullptr;
  const auto kernel = add ? context.cpu.rows.rms_norm_add : context.cpu.rows.rms_norm;
  for_each_row(context, args.x.num_rows(), args.x.row_elements(), [&](int64_t t) {
    const float* x = args.x.row_f32(t);
    float* out = target.row_f32(t);
    for (int64_t i = 0; i < norms; ++i) kernel(x + i * d, args.weight, d, args.eps, out + i * d);
  });
  return {};
}

Status layer_norm(StepContext& context, const LayerNormArgs& args) {
  check_same_shape(context, args.x, args.out);
  check(args.weight != nullptr || context.planning(), "layer_norm needs a weight");
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::layer_norm(context, args);
  const int64_t d = args.x.row_elements();
  for_each_row(context, args.x.num_rows(), d, [&](int64_t t) {
    context.cpu.rows.layer_norm(args.x.row_f32(t), args.weight, args.bias, d, args.eps,
                                args.out.row_f32(t));
  });
  return {};
}

Result<RopeAngles> rope_angles(StepContext& context, std::span<const int32_t> positions,
                               std::span<const float> inv_freq, float magnitude) {
  const auto rows = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(inv_freq.size());
  RopeAngles angles{context.arena.rows(DType::kF32, rows, half),
                    context.arena.rows(DType::kF32, rows, half)};
  if (context.planning()) return angles;
  if (context.device != nullptr) {
    if (Status s = on_device::rope_angles(context, positions, inv_freq, magnitude, angles);
        !s.ok()) {
      return s;
    }
    return angles;
  }
  // A sine costs about as much as sixteen ordinary elements.
  for_each_row(context, rows, half * 16, [&](int64_t t) {
    float* cosines = angles.cos.row_f32(t);
    float* sines = angles.sin.row_f32(t);
    const auto position = static_cast<float>(positions[static_cast<size_t>(t)]);
    for (int64_t i = 0; i < half; ++i) {
      // The angle is rounded to f32 as in the reference; its sine and cosine are then exact.
      const double angle = position * inv_freq[static_cast<size_t>(i)];
      cosines[i] = static_cast<float>(std::cos(angle)) * magnitude;
      sines[i] = static_cast<float>(std::sin(angle)) * magnitude;
    }
  });
  return angles;
}

Status rope(StepContext& context, const Tensor& x, const RopeAngles& angles, RopePairing pairing) {
  check_type(context, x);
  check(x.rank == 3, "rope needs [tokens, heads, head_dim]");
  const int64_t half = angles.cos.row_elements();
  check(angles.cos.num_rows() == x.num_rows() && angles.sin.num_rows() == x.num_rows() &&
            angles.sin.row_elements() == half,
        "rope angles do not match the rows");
  check(2 * half <= x.shape[2], "rotary_dim exceeds head_dim");
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::rope(context, x, angles, pairing);
  const auto kernel = pairing == RopePairing::kHalves ? context.cpu.rows.rope_halves
                                                      : context.cpu.rows.rope_adjacent;
  for_each_row(context, x.num_rows(), x.row_elements(), [&](int64_t t) {
    kernel({.x = x.row_f32(t),
            .heads = x.shape[1],
            .head_dim = x.shape[2],
            .rotary_half = half,
            .cosines = angles.cos.row_f32(t),
            .sines = angles.sin.row_f32(t)});
  });
  return {};
}

Status gated_activation(StepContext& context, Activation activation, const Tensor& gate,
                        const Tensor& up, const Tensor& out) {
  check_same_shape(context, gate, up);
  check_same_shape(context, gate, out);
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::activate(context, activation, gate, &up, out);
  const auto kernel = context.cpu.rows.activate[static_cast<size_t>(activation)];
  const int64_t n = gate.row_elements();
  for_each_row(context, gate.num_rows(), n,
               [&](int64_t t) { kernel(gate.row_f32(t), up.row_f32(t), n, out.row_f32(t)); });
  return {};
}

Status activate(StepContext& context, Activation activation, const Tensor& x) {
  check_type(context, x);
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::activate(context, activation, x, nullptr, x);
  const auto kernel = context.cpu.rows.activate[static_cast<size_t>(activation)];
  const int64_t n = x.row_elements();
  for_each_row(context, x.num_rows(), n,
               [&](int64_t t) { kernel(x.row_f32(t), nullptr, n, x.row_f32(t)); });
  return {};
}

Status soft_cap(StepContext& context, const Tensor& x, float cap) {
  check_type(context, x);
  check(cap > 0.0f, "soft cap must be positive");
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::soft_cap(context, x, cap);
  const int64_t n = x.row_elements();
  for_each_row(context, x.num_rows(), n,
               [&](int64_t t) { context.cpu.rows.soft_cap(x.row_f32(t), n, cap); });
  return {};
}

Status add(StepContext& context, const Tensor& x, const Tensor& y) {
  check_same_shape(context, x, y);
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::add(context, x, y);
  const int64_t n = x.row_elements();
  for_each_row(context, x.num_rows(), n,
               [&](int64_t t) { context.cpu.rows.add(x.row_f32(t), y.row_f32(t), n); });
  return {};
}

Status gather_rows(StepContext& context, const Tensor& x, std::span<const int32_t> rows,
                   const Tensor& out) {
  check_type(context, x);
  check_type(context, out);
  check(
      out.num_rows() == static_cast<int64_t>(rows.size()) && out.row_elements() == x.row_elements(),
      "gather_rows: shapes do not match");
  if (context.planning()) return {};
  for (const int32_t row : rows)
    check(row >= 0 && row < x.num_rows(), "gather_rows: row outside the tensor");
  if (context.device != nullptr) return on_device::gather_rows(context, x, rows, out);
  for (int64_t i = 0; i < out.num_rows(); ++i)
    std::copy_n(x.row_f32(rows[static_cast<size_t>(i)]), x.row_elements(), out.row_f32(i));
  return {};
}

}  // namespace pelton::ops
