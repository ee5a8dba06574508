// Kernels of a device backend: what they are given and how one is chosen. Every pointer is to
// device memory. Activations are f32 or bf16 as their view says; everything else is f32 unless its
// name says otherwise. Plain structs, copied by value.
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
#include "kernels/params/device_weights.h"
#include "kernels/params/matmul.h"
#include "kernels/params/sampling.h"

namespace pelton::kernels::cuda {
class CublasLt;
}

namespace pelton::kernels {

// Rows of activations. Sums are f32 whatever the type; a bf16 result is rounded once.
struct Rows {
  void* data = nullptr;
  DType type = DType::kF32;  // kF32 or kBF16
  int64_t stride = 0;        // elements between rows
};

enum class DeviceActivation : int32_t { kSilu, kGelu, kGeluTanh, kRelu };

// One product out [m, n] = x [m, k] * W^T [n, k], with what a kernel's choice may depend on.
struct MatmulProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  WeightFormat format = WeightFormat::kF32;     // of W, rows of k elements end to end
  WeightLayout layout = WeightLayout::kSource;  // or one of device_weights.h instead of a format
  bool bias = false;
  bool accumulate = false;  // out += product
  bool invariant = false;   // only kernels whose order of sums is the same for every m
  bool library = false;     // entries that launch through cuBLASLt may be chosen
  DType x_type = DType::kF32;
  DType out_type = DType::kF32;
  bool normed = false;  // x are f32 rows, and W multiplies their RMS norms, rounded to bf16
  // W holds n / 2 gate rows and then as many up rows; out [m, n / 2] = act(gate) * up.
  bool gated = false;
  DeviceActivation activation = DeviceActivation::kSilu;  // of a gated product
};
std::string to_string(
    const MatmulProblem& problem);  // "m 1, n 4096, k 4096, BF16, bf16 to f32, bias"

struct MatmulParams {
  MatmulProblem problem;
  Rows x;
  const float* norm_weight = nullptr;  // [k], of a normed product
  float norm_eps = 0;
  const std::byte* weight = nullptr;
  const float* scale = nullptr;  // [n], of layouts with a scale a channel
  const float* bias = nullptr;
  Rows out;
  std::byte* workspace = nullptr;
  cuda::CublasLt* cublaslt = nullptr;  // there where problem.library is set
};

// Attention of one step, or of a run of its sequences. Sequences are cut as SequenceSlice says.
struct AttentionProblem {
  int64_t rows = 0;  // of these sequences
  int64_t num_sequences = 0;
  int64_t max_rows = 0;     // of one sequence; 1: every sequence decodes
  int64_t max_context = 0;  // that one sequence may have: at least today's longest
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;
  KvFormat format = KvFormat::kBF16;
  bool window = false;
  bool soft_cap = false;
  bool sinks = false;
  bool alibi = false;
  bool invariant = false;  // only kernels whose order is the same for prompts and decoding rows
  DType query_type = DType::kF32;
  DType out_type = DType::kF32;
};
std::string to_string(const AttentionProblem& problem);

struct AttentionParams {
  AttentionProblem problem;
  Rows queries;  // [rows of the step, heads, head_dim]
  Rows out;      // [rows of the step, heads * head_dim]
  KvLayerView cache;
  // In the order of their rows, which are problem.rows from `first_row` on, each once. Other rows
  // are left alone. A context of 0 tokens gives zeros.
  const SequenceSlice* sequences = nullptr;
  int64_t first_row = 0;
  int64_t table_shift =
      0;  // bytes from SequenceSlice::blocks, a host address, to the device's copy
  AttentionVariant variant;
  std::byte* workspace = nullptr;
  std::byte* zeroed = nullptr;  // DeviceKernels::zeroed_bytes, zero at every launch and after it
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
  Rows x;                         // [rows][groups][d]
  const float* weight = nullptr;  // [d]
  const float* bias = nullptr;    // [d] or null
  Rows out;
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
  Rows x;  // [rows][heads][head_dim], rotated where it is
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t half = 0;
  bool adjacent = false;
};
struct ActivateParams {
  DeviceActivation activation = DeviceActivation::kSilu;
  Rows gate;
  Rows up;   // without data: act(gate) alone
  Rows out;  // may be gate
  int64_t rows = 0;
  int64_t columns = 0;
};
struct SoftCapParams {
  Rows x;
  int64_t rows = 0;
  int64_t columns = 0;
  float cap = 0;
};
struct AddParams {
  Rows x;
  Rows y;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct GatherParams {
  Rows x;
  const int32_t* indices = nullptr;  // [rows]
  Rows out;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct EmbeddingParams {
  const std::byte* table = nullptr;  // [vocabulary][columns] of `format`: F32, F16 or BF16
  WeightFormat format = WeightFormat::kF32;
  const int32_t* ids = nullptr;  // [rows]
  float scale = 1;
  Rows out;
  int64_t rows = 0;
  int64_t columns = 0;
};
struct AppendParams {
  Rows keys;  // [rows][kv_heads][head_dim]
  Rows values;
  const int32_t* slots = nullptr;  // [rows]; a negative one is a row without a place: not stored
  int64_t rows = 0;
  KvLayerView cache;
};
// What stands between the projection of queries, keys and values and attention: RMS norms of query
// and key heads, rotation of both, and storing keys and values. Queries and keys are also changed
// where they are. The launch directly ahead, the projection, writes neither angles nor slots.
struct PrepareParams {
  Rows qkv;  // [rows][heads + 2 kv_heads][head_dim]: queries, keys, values
  int64_t heads = 0;
  const float* query_norm = nullptr;  // [head_dim] or null
  const float* key_norm = nullptr;
  float query_eps = 0;
  float key_eps = 0;
  const float* cosines = nullptr;  // [rows][half]; null: nothing rotates
  const float* sines = nullptr;
  int64_t half = 0;
  bool adjacent = false;
  AppendParams append;
};

// Ids of tokens that the last step sampled, put where this step names them: an id below 0 becomes
// tokens[-1 - id].
struct TakeTokensParams {
  int32_t* ids = nullptr;  // [rows]
  const int32_t* tokens = nullptr;
  int64_t rows = 0;
};

struct CopyParams {
  const std::byte* from = nullptr;  // both 16-byte aligned, apart
  std::byte* to = nullptr;
  int64_t bytes = 0;  // a multiple of 16
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
  Launch<TakeTokensParams> take_tokens = nullptr;
  Launch<SampleParams> sample = nullptr;
  // All of norms, rope and append at once, for bf16 rows; null: they run one by one.
  Launch<PrepareParams> prepare = nullptr;
  // Null: there are no random weights on this device.
  Launch<RandomWeightsParams> random_weights = nullptr;
  Launch<CopyParams> copy = nullptr;  // null: the device's own copy is as good
  // Memory that a stream's launches share and that each leaves zero.
  size_t zeroed_bytes = 0;
};

}  // namespace pelton::kernels
