#include "ops/device_ops.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/params/device_kernels.h"

namespace pelton::ops::on_device {
namespace {

using kernels::AttentionProblem;
using kernels::DeviceActivation;
using kernels::MatmulProblem;
using kernels::WeightMatrix;

static_assert(static_cast<int>(Activation::kSilu) == static_cast<int>(DeviceActivation::kSilu) &&
              static_cast<int>(Activation::kGelu) == static_cast<int>(DeviceActivation::kGelu) &&
              static_cast<int>(Activation::kGeluTanh) ==
                  static_cast<int>(DeviceActivation::kGeluTanh) &&
              static_cast<int>(Activation::kRelu) == static_cast<int>(DeviceActivation::kRelu));

kernels::NormParams norm_params(const Tensor& x, const Tensor& out, int64_t d) {
  return {.x = x.f32(),
          .x_stride = x.row_stride,
          .out = out.f32(),
          .out_stride = out.row_stride,
          .rows = x.num_rows(),
          .groups = x.row_elements() / std::max<int64_t>(d, 1),
          .d = d};
}

bool is_empty(const Tensor& t) { return t.num_rows() == 0 || t.row_elements() == 0; }

// Scratch for any step of up to these rows: entries win at some number of rows, and scratch for
// fewer rows is not above that of their next power of two (the entries' contract).
template <typename Entry, typename Problem>
size_t planned_workspace(std::span<const Entry> entries, const device::Caps& caps, Problem problem,
                         int64_t Problem::* rows) {
  size_t bytes = 0;
  const auto whole = static_cast<uint64_t>(problem.*rows);
  for (uint64_t m = 1; m < 2 * std::bit_ceil(std::max<uint64_t>(whole, 1)); m *= 2) {
    problem.*rows = static_cast<int64_t>(m);
    for (const Entry& entry : entries) {
      if (entry.supports(caps, problem)) bytes = std::max(bytes, entry.workspace(caps, problem));
    }
  }
  return bytes;
}

}  // namespace

Status rms_norm(StepContext& context, const RmsNormArgs& args) {
  if (is_empty(args.x)) return {};
  const int64_t d = args.x.shape[static_cast<size_t>(args.x.rank - 1)];
  kernels::NormParams p =
      norm_params(args.x, args.residual != nullptr ? *args.residual : args.out, d);
  p.weight = args.weight;
  p.eps = args.eps;
  p.accumulate = args.residual != nullptr;
  return context.device->kernels.rms_norm(p, *context.device->stream);
}

Status layer_norm(StepContext& context, const LayerNormArgs& args) {
  if (is_empty(args.x)) return {};
  kernels::NormParams p = norm_params(args.x, args.out, args.x.row_elements());
  p.weight = args.weight;
  p.bias = args.bias;
  p.eps = args.eps;
  return context.device->kernels.layer_norm(p, *context.device->stream);
}

Status rope_angles(StepContext& context, std::span<const int32_t> positions,
                   std::span<const float> inv_freq, float magnitude, const RopeAngles& angles) {
  if (is_empty(angles.cos)) return {};
  return context.device->kernels.rope_angles(
      {.positions = context.device->inputs->twin(positions.data()),
       .inv_freq = inv_freq.data(),
       .magnitude = magnitude,
       .cosines = angles.cos.f32(),
       .sines = angles.sin.f32(),
       .rows = static_cast<int64_t>(positions.size()),
       .half = static_cast<int64_t>(inv_freq.size())},
      *context.device->stream);
}

Status rope(StepContext& context, const Tensor& x, const RopeAngles& angles, RopePairing pairing) {
  if (is_empty(x) || angles.cos.row_elements() == 0) return {};
  return context.device->kernels.rope({.x = x.f32(),
                                       .x_stride = x.row_stride,
                                       .cosines = angles.cos.f32(),
                                       .sines = angles.sin.f32(),
                                       .rows = x.num_rows(),
                                       .heads = x.shape[1],
                                       .head_dim = x.shape[2],
                                       .half = angles.cos.row_elements(),
                                       .adjacent = pairing == RopePairing::kAdjacent},
                                      *context.device->stream);
}

Status activate(StepContext& context, Activation activation, const Tensor& gate, const Tensor* up,
                const Tensor& out) {
  if (is_empty(gate)) return {};
  return context.device->kernels.activate({.activation = static_cast<DeviceActivation>(activation),
                                           .gate = gate.f32(),
                                           .gate_stride = gate.row_stride,
                                           .up = up == nullptr ? nullptr : up->f32(),
                                           .up_stride = up == nullptr ? 0 : up->row_stride,
                                           .out = out.f32(),
                                           .out_stride = out.row_stride,
                                           .rows = gate.num_rows(),
                                           .columns = gate.row_elements()},
                                          *context.device->stream);
}

Status soft_cap(StepContext& context, const Tensor& x, float cap) {
  if (is_empty(x)) return {};
  return context.device->kernels.soft_cap({.x = x.f32(),
                                           .x_stride = x.row_stride,
                                           .rows = x.num_rows(),
                                           .columns = x.row_elements(),
                                           .cap = cap},
                                          *context.device->stream);
}

Status add(StepContext& context, const Tensor& x, const Tensor& y) {
  if (is_empty(x)) return {};
  return context.device->kernels.add({.x = x.f32(),
                                      .x_stride = x.row_stride,
                                      .y = y.f32(),
                                      .y_stride = y.row_stride,
                                      .rows = x.num_rows(),
                                      .columns = x.row_elements()},
                                     *context.device->stream);
}

Status gather_rows(StepContext& context, const Tensor& x, std::span<const int32_t> rows,
                   const Tensor& out) {
  if (is_empty(out)) return {};
  return context.device->kernels.gather_rows({.x = x.f32(),
                                              .x_stride = x.row_stride,
                                              .indices = context.device->inputs->twin(rows.data()),
                                              .out = out.f32(),
                                              .out_stride = out.row_stride,
                                              .rows = out.num_rows(),
                                              .columns = out.row_elements()},
                                             *context.device->stream);
}

Status matmul(StepContext& context, const MatmulArgs& args) {
  const DeviceStep& device = *context.device;
  int64_t column = 0;
  for (size_t i = 0; i < args.weights.size();) {
    // Neighbours in memory of one format are one product.
    const WeightMatrix& first = args.weights[i];
    int64_t n = first.rows;
    const std::byte* end = first.data + first.bytes;
    for (++i; i < args.weights.size(); ++i) {
      const WeightMatrix& next = args.weights[i];
      if (next.format != first.format || next.data != end || first.data == nullptr) break;
      n += next.rows;
      end += next.bytes;
    }
    const MatmulProblem problem{.m = args.x.num_rows(),
                                .n = n,
                                .k = args.x.row_elements(),
                                .format = first.format,
                                .bias = args.bias != nullptr,
                                .accumulate = args.accumulate};
    const memory::StepArena::Scope scope(context.arena);
    if (context.planning()) {
      context.arena.allocate(
          planned_workspace(device.kernels.matmul, device.caps, problem, &MatmulProblem::m));
    } else if (problem.m > 0 && n > 0) {
      const auto* entry = kernels::choose(device.kernels.matmul, device.caps, problem);
      if (entry == nullptr) return unsupported("no device kernel multiplies " + to_string(problem));
      const size_t bytes = entry->workspace(device.caps, problem);
      if (Status s =
              entry->launch({.problem = problem,
                             .x = args.x.f32(),
                             .x_stride = args.x.row_stride,
                             .weight = first.data,
                             .bias = args.bias == nullptr ? nullptr : args.bias + column,
                             .out = args.out.f32() + column,
                             .out_stride = args.out.row_stride,
                             .workspace = static_cast<std::byte*>(context.arena.allocate(bytes))},
                            *device.stream);
          !s.ok()) {
        return s;
      }
    }
    column += n;
  }
  return {};
}

Status embedding(StepContext& context, const EmbeddingArgs& args) {
  if (is_empty(args.out)) return {};
  return context.device->kernels.embedding({.table = args.table->data,
                                            .format = args.table->format,
                                            .ids = context.device->inputs->twin(args.ids.data()),
                                            .scale = args.scale,
                                            .out = args.out.f32(),
                                            .out_stride = args.out.row_stride,
                                            .rows = args.out.num_rows(),
                                            .columns = args.out.row_elements()},
                                           *context.device->stream);
}

Status kv_append(StepContext& context, const KvAppendArgs& args) {
  if (is_empty(args.keys)) return {};
  return context.device->kernels.append({.keys = args.keys.f32(),
                                         .key_stride = args.keys.row_stride,
                                         .values = args.values.f32(),
                                         .value_stride = args.values.row_stride,
                                         .slots = context.device->inputs->twin(args.slots.data()),
                                         .rows = args.keys.num_rows(),
                                         .cache = args.cache},
                                        *context.device->stream);
}

Status attention(StepContext& context, const AttentionArgs& args) {
  const DeviceStep& device = *context.device;
  AttentionProblem problem{.rows = args.queries.num_rows(),
                           .num_sequences = static_cast<int64_t>(args.sequences.size()),
                           .heads = static_cast<int32_t>(args.queries.shape[1]),
                           .kv_heads = args.cache.num_kv_heads,
                           .head_dim = args.cache.head_dim,
                           .block_tokens = args.cache.block_tokens,
                           .format = args.cache.format,
                           .window = args.variant.sliding_window > 0,
                           .soft_cap = args.variant.soft_cap > 0,
                           .sinks = args.variant.sinks != nullptr,
                           .alibi = args.variant.alibi_slopes != nullptr};
  for (const kernels::SequenceSlice& s : args.sequences) {
    problem.max_rows = std::max<int64_t>(problem.max_rows, s.num_rows);
    problem.max_context = std::max<int64_t>(problem.max_context, s.context_len);
  }
  const memory::StepArena::Scope scope(context.arena);
  if (context.planning()) {
    context.arena.allocate(
        planned_workspace(device.kernels.attention, device.caps, problem, &AttentionProblem::rows));
    return {};
  }
  const auto* entry = kernels::choose(device.kernels.attention, device.caps, problem);
  if (entry == nullptr) return unsupported("no device kernel attends " + to_string(problem));
  const size_t bytes = entry->workspace(device.caps, problem);
  return entry->launch({.problem = problem,
                        .queries = args.queries.f32(),
                        .query_stride = args.queries.row_stride,
                        .out = args.out.f32(),
                        .out_stride = args.out.row_stride,
                        .cache = args.cache,
                        .sequences = device.inputs->twin(args.sequences.data()),
                        .table_shift = device.inputs->shift(),
                        .variant = args.variant,
                        .workspace = static_cast<std::byte*>(context.arena.allocate(bytes))},
                       *device.stream);
}

}  // namespace pelton::ops::on_device
