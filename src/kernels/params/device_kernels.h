// Kernels of a device backend: what they are given and how one is chosen. Every pointer is to
// device memory; everything is f32 unless its name says otherwise. Plain structs, copied by value.
//
// Pages on a device: block b of a layer begins at view.keys + b * view.block_bytes (values
// likewise) and holds each KV head's keys as [block_tokens][head_dim], heads one after another;
// with int8 each head's codes are followed by [block_tokens] f32 scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/caps.h"
#include "device/stream.h"
#include "kernels/params/attention.h"
#include "kernels/params/matmul.h"
#include "kernels/params/sampling.h"

namespace pelton::kernels {

// One product out [m, n] = x [m, k] * W^T [n, k], with what a kernel's choice may depend on.
struct MatmulProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  WeightFormat format = WeightFormat::kF32;  // of W, rows of k elements end to end
  bool bias = false;
  bool accumulate = false;  // out += product
};
std::string to_string(const MatmulProblem& problem);  // "m 1, n 4096, k 4096, BF16, bias"

struct MatmulParams {
  MatmulProblem problem;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const std::byte* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  std::byte* workspace = nullptr;
};

// Attention of one step. Sequences are cut as SequenceSlice says.
struct AttentionProblem {
  int64_t rows = 0;
  int64_t num_sequences = 0;
  int64_t max_rows = 0;     // of one sequence; 1: every sequence decodes
  int64_t max_context = 0;  // of one sequence
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;
  KvFormat format = KvFormat::kBF16;
  bool window = false;
  bool soft_cap = false;
  bool sinks = false;
  bool alibi = false;
};
std::string to_string(const AttentionProblem& problem);

struct AttentionParams {
  AttentionProblem problem;
  const float* queries = nullptr;  // [rows, heads, head_dim]
  int64_t query_stride = 0;
  float* out = nullptr;  // [rows, heads * head_dim]
  int64_t out_stride = 0;
  KvLayerView cache;
  const SequenceSlice* sequences = nullptr;  // by first_row, which covers every row once
  int64_t table_shift =
      0;  // bytes from SequenceSlice::blocks, a host address, to the device's copy
  AttentionVariant variant;
  std::byte* workspace = nullptr;
};

// A kernel that competes with others. All but `launch` are pure and run without a device.
template <typename Problem, typename Params>
struct DeviceEntry {
  const char* name;
  bool (*supports)(const device::Caps& caps, const Problem& problem);
  // Estimated seconds; only the order matters.
  double (*cost)(const device::Caps& caps, const Problem& problem);
  // Bytes of scratch. Not smaller for the next power of two of rows than for fewer rows.
  size_t (*workspace)(const device::Caps& caps, const Problem& problem);
  Status (*launch)(const Params& params, device::Stream& stream);
};
using MatmulEntry = DeviceEntry<MatmulProblem, MatmulParams>;
using AttentionEntry = DeviceEntry<AttentionProblem, AttentionParams>;

// The cheapest of the entries that support the problem, the earlier of equals; null when none does.
template <typename Problem, typename Params>
const DeviceEntry<Problem, Params>* choose(std::span<const DeviceEntry<Problem, Params>> entries,
                                           const device::Caps& caps, const Problem& problem) {
  const DeviceEntry<Problem, Params>* best = nullptr;
  double lowest = 0;
  for (const auto& entry : entries) {
    if (!entry.supports(caps, problem)) continue;
    const double cost = entry.cost(caps, problem);
    if (best == nullptr || cost < lowest) {
      best = &entry;
      lowest = cost;
    }
  }
  return best;
}

// Row kernels: one each, so nothing is chosen. Strides are between rows.
struct NormParams {
  const float* x = nullptr;  // [rows][groups][d]
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [d]
  const float* bias = nullptr;    // [d] or null
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t groups = 1;  // normalised apart from one another
  int64_t d = 0;
  float eps = 0;
  bool accumulate = false;  // out += norm
};
struct RopeAnglesParams {
  const int32_t* positions = nullptr;  // [rows]
  const float* inv_freq = nullptr;     // [half]
  float magnitude = 1;
  float* cosines = nullptr;  // [rows][half]
  float* sines = nullptr;
  int64_t rows = 0;
  int64_t half = 0;
};
struct RopeParams {
  float* x = nullptr;  // [rows][heads][head_dim], rotated where it is
  int64_t x_stride = 0;
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t half = 0;
  bool adjacent = false;
};
enum class DeviceActivation : int32_t { kSilu, kGelu, kGeluTanh, kRelu };
struct ActivateParams {
  DeviceActivation activation = DeviceActivation::kSilu;
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  const float* up = nullptr;  // null: act(gate) alone
  int64_t up_stride = 0;
  float* out = nullptr;  // may be gate
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct SoftCapParams {
  float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  float cap = 0;
};
struct AddParams {
  float* x = nullptr;
  int64_t x_stride = 0;
  const float* y = nullptr;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct GatherParams {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* indices = nullptr;  // [rows]
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct EmbeddingParams {
  const std::byte* table = nullptr;  // [vocabulary][columns] of `format`: F32, F16 or BF16
  WeightFormat format = WeightFormat::kF32;
  const int32_t* ids = nullptr;  // [rows]
  float scale = 1;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct AppendParams {
  const float* keys = nullptr;  // [rows][kv_heads][head_dim]
  int64_t key_stride = 0;
  const float* values = nullptr;
  int64_t value_stride = 0;
  const int32_t* slots = nullptr;  // [rows]
  int64_t rows = 0;
  KvLayerView cache;
};

template <typename Params>
using Launch = Status (*)(const Params& params, device::Stream& stream);

struct DeviceKernels {
  std::span<const MatmulEntry> matmul;
  std::span<const AttentionEntry> attention;
  Launch<NormParams> rms_norm = nullptr;
  Launch<NormParams> layer_norm = nullptr;
  Launch<RopeAnglesParams> rope_angles = nullptr;
  Launch<RopeParams> rope = nullptr;
  Launch<ActivateParams> activate = nullptr;
  Launch<SoftCapParams> soft_cap = nullptr;
  Launch<AddParams> add = nullptr;
  Launch<GatherParams> gather_rows = nullptr;
  Launch<EmbeddingParams> embedding = nullptr;
  Launch<AppendParams> append = nullptr;
  Launch<SampleParams> sample = nullptr;
};

}  // namespace pelton::kernels
