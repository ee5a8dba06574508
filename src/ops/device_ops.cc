#include "ops/device_ops.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/params/device_kernels.h"
#include "kernels/params/device_weights.h"

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

kernels::Rows rows_of(const Tensor& t) { return {t.data, t.dtype, t.row_stride}; }

kernels::NormParams norm_params(const Tensor& x, const Tensor& out, int64_t d) {
  return {.x = rows_of(x),
          .out = rows_of(out),
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

// Neighbours in memory of one format are one product.
struct Merged {
  size_t count = 0;  // of the weights, from the first on
  int64_t n = 0;
  const WeightMatrix* first = nullptr;
};
Merged merge(std::span<const WeightMatrix> weights) {
  Merged merged;
  const std::byte* end = nullptr;
  for (const WeightMatrix& w : weights) {
    if (merged.count == 0) {
      merged = {1, w.rows, &w};
    } else {
      const WeightMatrix& first = *merged.first;
      const bool is_plain =
          first.layout == kernels::WeightLayout::kSource && first.layout == w.layout;
      if (!is_plain || w.format != first.format || w.data != end || first.data == nullptr) break;
      merged.n += w.rows;
      ++merged.count;
    }
    end = w.data + w.bytes;
  }
  return merged;
}

MatmulProblem problem_of(const StepContext& context, const MatmulArgs& args, const Merged& merged) {
  return {.m = args.x.num_rows(),
          .n = merged.n,
          .k = args.x.row_elements(),
          .format = merged.first->format,
          .layout = merged.first->layout,
          .bias = args.bias != nullptr,
          .accumulate = args.accumulate,
          .invariant = context.device->invariant,
          .library = context.device->has_cublaslt,
          .x_type = args.x.dtype,
          .out_type = args.out.dtype,
          .normed = args.norm};
}

// One product by the cheapest entry, into the columns of `args.out` from `column` on. Plans scratch
// in plan mode.
Status multiply(StepContext& context, const MatmulArgs& args, const MatmulProblem& problem,
                const std::byte* weight, int64_t column) {
  const DeviceStep& device = *context.device;
  const memory::StepArena::Scope scope(context.arena);
  if (context.planning()) {
    context.arena.allocate(
        planned_workspace(device.kernels.matmul, device.caps, problem, &MatmulProblem::m));
    return {};
  }
  if (problem.m == 0 || problem.n == 0) return {};
  const auto* entry = kernels::choose(device.kernels.matmul, device.caps, problem);
  if (entry == nullptr) return unsupported("no device kernel multiplies " + to_string(problem));
  kernels::Rows out = rows_of(args.out);
  out.data = static_cast<std::byte*>(out.data) + column * dtype_bytes(out.type);
  const bool has_scales = problem.layout == kernels::WeightLayout::kFp8Channels ||
                          problem.layout == kernels::WeightLayout::kInt8Channels;
  const auto* scale = reinterpret_cast<const float*>(
      has_scales ? weight + kernels::channel_scales_offset(problem.n, problem.k) : nullptr);
  const size_t bytes = entry->workspace(device.caps, problem);
  return entry->launch({.problem = problem,
                        .x = rows_of(args.x),
                        .norm_weight = args.norm_weight,
                        .norm_eps = args.norm_eps,
                        .weight = weight,
                        .scale = scale,
                        .bias = args.bias == nullptr ? nullptr : args.bias + column,
                        .out = out,
                        .workspace = static_cast<std::byte*>(context.arena.allocate(bytes)),
                        .cublaslt = device.cublaslt},
                       *device.stream);
}

// Whether one gated product beats the product and the activation one after the other.
bool is_cheaper(const DeviceStep& device, const MatmulProblem& gated, const MatmulProblem& apart) {
  const auto* whole = kernels::choose(device.kernels.matmul, device.caps, gated);
  if (whole == nullptr) return false;
  const auto* product = kernels::choose(device.kernels.matmul, device.caps, apart);
  if (product == nullptr) return true;
  // The activation reads n and writes n / 2 numbers a row.
  const double bytes = static_cast<double>(apart.m * apart.n) * 1.5 * dtype_bytes(apart.out_type);
  const double activation = device.caps.bandwidth > 0 ? bytes / device.caps.bandwidth : 0.0;
  return whole->cost(device.caps, gated) <= product->cost(device.caps, apart) + activation;
}

// Whether the product that norms its rows itself beats a norm and the product of its rows.
bool is_cheaper_normed(const StepContext& context, const MatmulProblem& normed) {
  constexpr double kLaunch = 2e-6;  // seconds
  const DeviceStep& device = *context.device;
  const auto* whole = kernels::choose(device.kernels.matmul, device.caps, normed);
  if (whole == nullptr || context.activation_type() != DType::kBF16) return false;
  MatmulProblem apart = normed;
  apart.normed = false;
  apart.x_type = DType::kBF16;
  const auto* product = kernels::choose(device.kernels.matmul, device.caps, apart);
  // A norm of its own reads f32 rows and writes bf16.
  const double bytes = static_cast<double>(normed.m * normed.k) * 6;
  const double norm = kLaunch + (device.caps.bandwidth > 0 ? bytes / device.caps.bandwidth : 0.0);
  return product == nullptr ||
         whole->cost(device.caps, normed) < product->cost(device.caps, apart) + norm;
}

// The same product of rows that are normed apart; `run` multiplies them.
template <typename Run>
Status with_normed_rows(StepContext& context, const MatmulArgs& args, const Run& run) {
  const memory::StepArena::Scope scope(context.arena);
  MatmulArgs product = args;
  product.norm = false;
  product.x = context.activation(args.x.num_rows(), args.x.row_elements());
  if (!context.planning()) {
    Status s = on_device::rms_norm(
        context, {.x = args.x, .weight = args.norm_weight, .eps = args.norm_eps, .out = product.x});
    if (!s.ok()) return s;
  }
  return run(product);
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
  return context.device->kernels.rope({.x = rows_of(x),
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
                                           .gate = rows_of(gate),
                                           .up = up == nullptr ? kernels::Rows() : rows_of(*up),
                                           .out = rows_of(out),
                                           .rows = gate.num_rows(),
                                           .columns = gate.row_elements()},
                                          *context.device->stream);
}

Status soft_cap(StepContext& context, const Tensor& x, float cap) {
  if (is_empty(x)) return {};
  return context.device->kernels.soft_cap(
      {.x = rows_of(x), .rows = x.num_rows(), .columns = x.row_elements(), .cap = cap},
      *context.device->stream);
}

Status add(StepContext& context, const Tensor& x, const Tensor& y) {
  if (is_empty(x)) return {};
  return context.device->kernels.add(
      {.x = rows_of(x), .y = rows_of(y), .rows = x.num_rows(), .columns = x.row_elements()},
      *context.device->stream);
}

Status gather_rows(StepContext& context, const Tensor& x, std::span<const int32_t> rows,
                   const Tensor& out) {
  if (is_empty(out)) return {};
  return context.device->kernels.gather_rows({.x = rows_of(x),
                                              .indices = context.device->inputs->twin(rows.data()),
                                              .out = rows_of(out),
                                              .rows = out.num_rows(),
                                              .columns = out.row_elements()},
                                             *context.device->stream);
}

Status matmul(StepContext& context, const MatmulArgs& args) {
  if (args.norm) {
    const Merged merged = merge(args.weights);
    const MatmulProblem problem = problem_of(context, args, merged);
    if (!context.planning() && merged.count == args.weights.size() &&
        is_cheaper_normed(context, problem)) {
      return multiply(context, args, problem, merged.first->data, 0);
    }
    return with_normed_rows(context, args, [&](const MatmulArgs& product) {
      return on_device::matmul(context, product);
    });
  }
  int64_t column = 0;
  for (size_t i = 0; i < args.weights.size();) {
    const Merged merged = merge(args.weights.subspan(i));
    i += merged.count;
    const MatmulProblem problem = problem_of(context, args, merged);
    if (Status s = multiply(context, args, problem, merged.first->data, column); !s.ok()) return s;
    column += problem.n;
  }
  return {};
}

Status gated_matmul(StepContext& context, const GatedMatmulArgs& args) {
  const DeviceStep& device = *context.device;
  const MatmulArgs& product = args.product;
  const Merged merged = merge(product.weights);
  if (product.norm) {
    MatmulProblem problem = problem_of(context, product, merged);
    problem.gated = true;
    problem.activation = static_cast<DeviceActivation>(args.activation);
    if (!context.planning() && merged.count == product.weights.size() &&
        is_cheaper_normed(context, problem)) {
      return multiply(context, product, problem, merged.first->data, 0);
    }
    return with_normed_rows(context, product, [&](const MatmulArgs& normed) {
      return on_device::gated_matmul(context, {.product = normed, .activation = args.activation});
    });
  }
  const memory::StepArena::Scope scope(context.arena);
  MatmulArgs both = product;
  if (merged.count == product.weights.size()) {
    const MatmulProblem apart = problem_of(context, product, merged);
    MatmulProblem gated = apart;
    gated.gated = true;
    gated.activation = static_cast<DeviceActivation>(args.activation);
    if (context.planning()) {
      if (Status s = multiply(context, product, gated, merged.first->data, 0); !s.ok()) return s;
    } else if (is_cheaper(device, gated, apart)) {
      return multiply(context, product, gated, merged.first->data, 0);
    }
  }
  const int64_t half = product.out.row_elements();
  both.out = context.arena.rows(product.out.dtype, product.x.num_rows(), 2 * half);
  if (Status s = on_device::matmul(context, both); !s.ok()) return s;
  const Tensor up = both.out.columns(half, half);
  if (context.planning()) return {};
  return activate(context, args.activation, both.out.columns(0, half), &up, product.out);
}

Status embedding(StepContext& context, const EmbeddingArgs& args) {
  if (is_empty(args.out)) return {};
  return context.device->kernels.embedding({.table = args.table->data,
                                            .format = args.table->format,
                                            .ids = context.device->inputs->twin(args.ids.data()),
                                            .scale = args.scale,
                                            .out = rows_of(args.out),
                                            .rows = args.out.num_rows(),
                                            .columns = args.out.row_elements()},
                                           *context.device->stream);
}

namespace {

kernels::AppendParams append_params(const StepContext& context, const KvAppendArgs& args) {
  return {.keys = rows_of(args.keys),
          .values = rows_of(args.values),
          .slots = context.device->inputs->twin(args.slots.data()),
          .rows = args.keys.num_rows(),
          .cache = args.cache};
}

}  // namespace

Status kv_append(StepContext& context, const KvAppendArgs& args) {
  if (is_empty(args.keys)) return {};
  return context.device->kernels.append(append_params(context, args), *context.device->stream);
}

bool fuses_preparation(const StepContext& context, const PrepareArgs& args) {
  return context.device->kernels.prepare != nullptr && args.qkv.dtype == DType::kBF16 &&
         args.cache.head_dim % 8 == 0 && args.cache.head_dim <= 256;
}

Status prepare_attention(StepContext& context, const PrepareArgs& args) {
  if (is_empty(args.qkv)) return {};
  const int64_t query_size = args.heads * args.cache.head_dim;
  const int64_t kv_size = int64_t{args.cache.num_kv_heads} * args.cache.head_dim;
  const RopeAngles* angles = args.angles;
  return context.device->kernels.prepare(
      {.qkv = rows_of(args.qkv),
       .heads = args.heads,
       .query_norm = args.query_norm,
       .key_norm = args.key_norm,
       .query_eps = args.query_eps,
       .key_eps = args.key_eps,
       .cosines = angles == nullptr ? nullptr : angles->cos.f32(),
       .sines = angles == nullptr ? nullptr : angles->sin.f32(),
       .half = angles == nullptr ? 0 : angles->cos.row_elements(),
       .adjacent = args.pairing == RopePairing::kAdjacent,
       .append = append_params(context, {.keys = args.qkv.columns(query_size, kv_size),
                                         .values = args.qkv.columns(query_size + kv_size, kv_size),
                                         .slots = args.slots,
                                         .cache = args.cache})},
      *context.device->stream);
}

namespace {

// Of a run of the step's sequences.
AttentionProblem attention_problem(const DeviceStep& device, const AttentionArgs& args,
                                   std::span<const kernels::SequenceSlice> sequences) {
  AttentionProblem problem{.num_sequences = static_cast<int64_t>(sequences.size()),
                           .heads = static_cast<int32_t>(args.queries.shape[1]),
                           .kv_heads = args.cache.num_kv_heads,
                           .head_dim = args.cache.head_dim,
                           .block_tokens = args.cache.block_tokens,
                           .format = args.cache.format,
                           .window = args.variant.sliding_window > 0,
                           .soft_cap = args.variant.soft_cap > 0,
                           .sinks = args.variant.sinks != nullptr,
                           .alibi = args.variant.alibi_slopes != nullptr,
                           .invariant = device.invariant,
                           .query_type = args.queries.dtype,
                           .out_type = args.out.dtype};
  for (const kernels::SequenceSlice& s : sequences) {
    problem.rows += s.num_rows;
    problem.max_rows = std::max<int64_t>(problem.max_rows, s.num_rows);
    problem.max_context = std::max<int64_t>(problem.max_context, s.context_len);
  }
  problem.max_context = std::max<int64_t>(problem.max_context, device.max_context);
  return problem;
}

Status attend(StepContext& context, const AttentionArgs& args,
              std::span<const kernels::SequenceSlice> sequences) {
  const DeviceStep& device = *context.device;
  const AttentionProblem problem = attention_problem(device, args, sequences);
  const auto* entry = kernels::choose(device.kernels.attention, device.caps, problem);
  if (entry == nullptr) return unsupported("no device kernel attends " + to_string(problem));
  const memory::StepArena::Scope scope(context.arena);
  const size_t bytes = entry->workspace(device.caps, problem);
  return entry->launch({.problem = problem,
                        .queries = rows_of(args.queries),
                        .out = rows_of(args.out),
                        .cache = args.cache,
                        .sequences = device.inputs->twin(sequences.data()),
                        .first_row = sequences.empty() ? 0 : sequences.front().first_row,
                        .table_shift = device.inputs->shift(),
                        .variant = args.variant,
                        .workspace = static_cast<std::byte*>(context.arena.allocate(bytes)),
                        .zeroed = device.zeroed},
                       *device.stream);
}

}  // namespace

// A kernel for prompts gives a decoding row a whole tile, so the sequences that decode, which a
// step has first, go to one of their own.
Status attention(StepContext& context, const AttentionArgs& args) {
  const DeviceStep& device = *context.device;
  if (context.planning()) {
    const memory::StepArena::Scope scope(context.arena);
    AttentionProblem problem = attention_problem(device, args, args.sequences);
    const size_t whole =
        planned_workspace(device.kernels.attention, device.caps, problem, &AttentionProblem::rows);
    problem.rows = problem.num_sequences;
    problem.max_rows = 1;
    const size_t decoding =
        planned_workspace(device.kernels.attention, device.caps, problem, &AttentionProblem::rows);
    context.arena.allocate(std::max(whole, decoding));
    return {};
  }
  const auto prompt = std::ranges::find_if(
      args.sequences, [](const kernels::SequenceSlice& s) { return s.num_rows != 1; });
  const auto decoding = static_cast<size_t>(prompt - args.sequences.begin());
  if (decoding == 0 || decoding == args.sequences.size() || device.invariant)
    return attend(context, args, args.sequences);
  if (Status s = attend(context, args, args.sequences.first(decoding)); !s.ok()) return s;
  return attend(context, args, args.sequences.subspan(decoding));
}

}  // namespace pelton::ops::on_device
