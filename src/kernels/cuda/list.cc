#include "kernels/cuda/list.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cuda/entries/code_rows.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/params/device_weights.h"

namespace pelton::kernels::cuda {
namespace {

bool is_plain_format(const MatmulProblem& p) {
  const WeightFormat format = p.format;
  if (p.layout != WeightLayout::kSource)
    return p.layout == WeightLayout::kFp8Channels || p.layout == WeightLayout::kInt8Channels;
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

double weight_size(const MatmulProblem& p) {
  if (p.layout == WeightLayout::kSource)
    return static_cast<double>(p.n * p.k) * weight_format_info(p.format).block_bytes;
  return static_cast<double>(device_weight_bytes(p.layout, p.n, p.k));
}

double plain_matmul_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr int64_t kRowsAPass = 8;        // the weight is read once for so many rows
  constexpr double kMultiplyAdds = 10e12;  // a second, without tensor cores
  constexpr double kShare = 0.6;           // of the bandwidth
  constexpr double kLaunch = 4e-6;
  const auto passes = static_cast<double>((p.m + kRowsAPass - 1) / kRowsAPass);
  const double arithmetic = static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
  return kLaunch +
         std::max(passes * weight_size(p) / (kShare * caps.bandwidth), arithmetic / kMultiplyAdds);
}

// Whether a block's shared memory holds the norms, as small_m.h says.
bool small_m_fits_norm(const MatmulProblem& p) {
  return p.x_type == DType::kF32 && p.m <= 8 && p.m * ((p.k + 127) / 128 * 128) * 2 <= 32 * 1024;
}

bool small_m_supports(const device::Caps& caps, const MatmulProblem& p) {
  // Of bf16 rows alone: an f32 row would lose what --activations f32 asks for.
  if (!caps.is_hopper() || (p.normed ? !small_m_fits_norm(p) : p.x_type != DType::kBF16))
    return false;
  const bool is_kept = p.layout == WeightLayout::kSource ? p.format == WeightFormat::kBF16
                                                         : fits_device_layout(p.layout, p.k);
  if (!is_kept || p.k % 8 != 0 || p.n > INT32_MAX || p.k > INT32_MAX) return false;
  const int64_t gate_rows = p.layout == WeightLayout::kInt4Groups ? 32 : 2;
  return !p.gated ||
         (p.activation == DeviceActivation::kSilu && p.n % gate_rows == 0 && !p.accumulate);
}

// The plain kernels take anything the backend stores; faster ones undercut their cost, and are the
// only ones where a row needs one order whatever its company.
bool plain_matmul_supports(const device::Caps& caps, const MatmulProblem& p) {
  return caps.is_hopper() && is_plain_format(p) && !p.gated && !p.normed &&
         !(p.invariant && small_m_supports(caps, p));
}

// Times measured on an H200 (bench/cuda), as what a launch costs whatever its size, and the share
// of the bandwidth with which the weight passes beyond that: of launches of up to `rows`.
struct StreamCost {
  int64_t rows;
  double launch;
  double share;
};

double stream_seconds(std::span<const StreamCost> costs, const device::Caps& caps,
                      const MatmulProblem& p, int64_t rows) {
  const StreamCost* cost = costs.data();
  while (cost->rows < rows && cost != &costs.back()) ++cost;
  return cost->launch + weight_size(p) / (cost->share * caps.bandwidth);
}

constexpr int kCostSteps = 3;
struct FormatCosts {
  StreamCost bf16[kCostSteps];
  StreamCost fp8[kCostSteps];
  StreamCost int8[kCostSteps];
  StreamCost int4[kCostSteps];

  std::span<const StreamCost> of(const MatmulProblem& p) const {
    return p.layout == WeightLayout::kSource         ? bf16
           : p.layout == WeightLayout::kInt4Groups   ? int4
           : p.layout == WeightLayout::kInt8Channels ? int8
                                                     : fp8;
  }
};

constexpr FormatCosts kSmallM = {
    .bf16 = {{8, 2.5e-6, 1.04}, {16, 4e-6, 1.04}, {32, 8e-6, 0.9}},
    .fp8 = {{8, 2.8e-6, 1.05}, {16, 8e-6, 0.9}, {32, 8e-6, 0.52}},
    .int8 = {{8, 2.8e-6, 1.05}, {16, 8e-6, 0.9}, {32, 8e-6, 0.52}},
    .int4 = {{8, 2.9e-6, 0.9}, {16, 9e-6, 0.64}, {32, 9e-6, 0.27}},
};
constexpr FormatCosts kWideM = {
    .bf16 = {{32, 3e-6, 1.0}, {64, 4e-6, 1.0}, {128, 7.3e-6, 0.985}},
    .fp8 = {{32, 2.8e-6, 1.03}, {64, 3.9e-6, 0.98}, {128, 6.3e-6, 0.89}},
    .int8 = {{32, 6e-6, 0.775}, {64, 6.8e-6, 0.66}, {128, 8.4e-6, 0.517}},
    .int4 = {{32, 4.8e-6, 0.81}, {64, 5.7e-6, 0.615}, {128, 7.7e-6, 0.4}},
};
// Where a block of 128 rows of W has a sixth of K (wide_m_split: of up to 32 such tiles). Of
// BF16 it takes longer among the other kernels of a step than alone: o and down of 32 rows of an 8B
// model 13 us a layer more than small_m.
constexpr FormatCosts kWideMFew = {
    .bf16 = {{32, 12.5e-6, 0.8}, {64, 5.3e-6, 0.97}, {128, 7.7e-6, 0.9}},
    .fp8 = {{32, 4.6e-6, 1.08}, {64, 6e-6, 1.02}, {128, 8.8e-6, 0.97}},
    .int8 = {{32, 5.9e-6, 0.665}, {64, 7.3e-6, 0.58}, {128, 11.3e-6, 0.49}},
    .int4 = {{32, 5.7e-6, 0.675}, {64, 7.5e-6, 0.54}, {128, 10.6e-6, 0.354}},
};

// The weight is read again for every so many rows.
double passes_seconds(const FormatCosts& costs, const device::Caps& caps, const MatmulProblem& p,
                      int64_t most_rows) {
  const int64_t rest = p.m % most_rows;
  return static_cast<double>(p.m / most_rows) * stream_seconds(costs.of(p), caps, p, most_rows) +
         (rest > 0 ? stream_seconds(costs.of(p), caps, p, rest) : 0.0);
}

double small_m_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr double kNorm = 0.5e-6;
  return passes_seconds(kSmallM, caps, p, kSmallMRows) + (p.normed ? kNorm : 0.0);
}

constexpr size_t kZeroedBytes = size_t{1} << 20;

// Few rows keep to the order of sums of small_m, where that does not cost much.
bool is_wide_m(const device::Caps& caps, const MatmulProblem& p) {
  constexpr int64_t kFew = 8;
  return !p.normed && small_m_supports(caps, p) && !p.invariant && p.m > kFew &&
         p.m <= 2 * kWideMRows;
}
bool wide_m_supports(const device::Caps& caps, const MatmulProblem& p) {
  return p.layout != WeightLayout::kFp8Channels && is_wide_m(caps, p);
}

double wide_m_cost(const device::Caps& caps, const MatmulProblem& p) {
  const bool is_few = (p.n + 127) / 128 <= 32;
  return passes_seconds(is_few ? kWideMFew : kWideM, caps, p, kWideMRows);
}

// Rows may be normed on the way, as far as quantize_rows.h takes them.
bool rows_become_codes(const MatmulProblem& p) {
  constexpr int64_t kMostNormed = 8192;
  return p.normed ? p.x_type == DType::kF32 && p.k <= kMostNormed : p.x_type == DType::kBF16;
}

// Not for few rows even where it would be as fast: a row of a decode step has one order of sums.
bool many_rows_supports(const device::Caps& caps, const MatmulProblem& p, WeightLayout layout) {
  if (!caps.is_hopper() || p.layout != layout || p.invariant) return false;
  const bool has_codes =
      layout == WeightLayout::kFp8Channels || layout == WeightLayout::kInt8Channels;
  if (has_codes ? !rows_become_codes(p) : p.normed || p.x_type != DType::kBF16) return false;
  if (layout == WeightLayout::kSource && p.format != WeightFormat::kBF16) return false;
  constexpr int64_t kMostInputs = 1 << 17;  // whose sums of int8 products fit
  const int64_t inputs = layout == WeightLayout::kSource ? 8 : 16;
  const int64_t most = layout == WeightLayout::kInt8Channels ? kMostInputs : INT32_MAX;
  if (p.m <= kSmallMRows || p.m > INT32_MAX || p.n > INT32_MAX || p.k > most || p.k % inputs != 0)
    return false;
  if (p.gated && (p.activation != DeviceActivation::kSilu || p.accumulate)) return false;
  return p.n % (p.gated ? 16 : 8) == 0 && !(p.accumulate && p.out_type != DType::kF32);
}
bool gemm_supports(const device::Caps& caps, const MatmulProblem& p) {
  return many_rows_supports(caps, p, WeightLayout::kSource);
}
bool gemm_fp8_supports(const device::Caps& caps, const MatmulProblem& p) {
  return many_rows_supports(caps, p, WeightLayout::kFp8Channels);
}
// As wide_m, of rows that became codes, normed or not.
bool wide_m_fp8_supports(const device::Caps& caps, const MatmulProblem& p) {
  MatmulProblem rows = p;
  rows.normed = false;
  rows.x_type = DType::kBF16;
  return p.layout == WeightLayout::kFp8Channels && is_wide_m(caps, rows) && rows_become_codes(p);
}
bool gemm_int8_supports(const device::Caps& caps, const MatmulProblem& p) {
  return many_rows_supports(caps, p, WeightLayout::kInt8Channels);
}
// W is written as bf16 first, which more than a wide_m's rows are worth.
bool gemm_int4_supports(const device::Caps& caps, const MatmulProblem& p) {
  return p.m > kWideMRows && fits_device_layout(p.layout, p.k) &&
         many_rows_supports(caps, p, WeightLayout::kInt4Groups);
}

// Time of a multiprocessor that works through its share of the tiles, as gemm.cu cuts them: few
// rows of a small W leave most of the chip without one.
double tiles_cost(const device::Caps& caps, const MatmulProblem& p, double step) {
  constexpr double kLaunch = 3e-6;
  constexpr double kShare = 0.8;  // of the bandwidth
  // Seconds to finish a tile of 128 x 128; `step` for each of its k.
  const double finish = p.accumulate ? 4.5e-6 : 1e-6;
  const int64_t row_tiles = (p.m + 127) / 128;
  const double steps = step * static_cast<double>(p.k) + finish;
  double least = 0;
  for (const int64_t width : {1, 2}) {  // in units of 128 columns
    const int64_t tiles = row_tiles * ((p.n + 128 * width - 1) / (128 * width));
    const double rounds = std::ceil(static_cast<double>(tiles) / std::max(caps.num_sms, 1));
    const double seconds = rounds * static_cast<double>(width) * steps;
    least = width == 1 ? seconds : std::min(least, seconds);
  }
  return kLaunch + std::max(weight_size(p) / (kShare * caps.bandwidth), least);
}

double gemm_cost(const device::Caps& caps, const MatmulProblem& p) {
  return tiles_cost(caps, p, 5.3e-9);
}

// Rows are read and their codes written before the product begins.
double quantize_cost(const device::Caps& caps, const MatmulProblem& p) {
  const double launch = p.normed ? 2e-6 : 1.5e-6;
  const double bytes = static_cast<double>(p.m * p.k) * (dtype_bytes(p.x_type) + 1);
  return launch + bytes / caps.bandwidth;
}

double wide_m_fp8_cost(const device::Caps& caps, const MatmulProblem& p) {
  return quantize_cost(caps, p) + wide_m_cost(caps, p);
}

double gemm_codes_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr double kStep = 2.85e-9;
  if (const int32_t splits = code_splits(p); splits > 1) {
    constexpr double kLaunches = 12e-6;  // with the sums' way through memory
    return quantize_cost(caps, p) + kLaunches + kStep * static_cast<double>(p.k) / splits;
  }
  return quantize_cost(caps, p) + tiles_cost(caps, p, kStep);
}

size_t gemm_codes_scratch(const device::Caps& /*caps*/, const MatmulProblem& p) {
  return code_rows_bytes(p.m, p.k) + code_splits_bytes(p);
}

bool cublaslt_supports(const device::Caps& caps, const MatmulProblem& p) {
  return p.library && !p.gated && !p.bias && gemm_supports(caps, p);
}

double library_cost(const device::Caps& caps, const MatmulProblem& p, double multiply_adds) {
  constexpr double kLaunch = 4.5e-6;  // with what is lost as its kernels do not begin early
  constexpr double kShare = 0.95;
  const double arithmetic = static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
  return kLaunch + std::max(weight_size(p) / (kShare * caps.bandwidth), arithmetic / multiply_adds);
}
double cublaslt_cost(const device::Caps& caps, const MatmulProblem& p) {
  return library_cost(caps, p, 345e12);
}

bool cublaslt_fp8_supports(const device::Caps& caps, const MatmulProblem& p) {
  return p.library && !p.gated && !p.bias && gemm_fp8_supports(caps, p);
}
double cublaslt_fp8_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr double kStep = 2.6e-9;  // K is not cut: no product takes less for each of its k
  return quantize_cost(caps, p) +
         std::max(library_cost(caps, p, 700e12), 5e-6 + kStep * static_cast<double>(p.k));
}
size_t cublaslt_fp8_scratch(const device::Caps& /*caps*/, const MatmulProblem& p) {
  return code_rows_bytes(p.m, p.k) + std::max(CublasLt::kWorkspace, code_splits_bytes(p));
}

size_t cublaslt_scratch(const device::Caps& /*caps*/, const MatmulProblem& /*p*/) {
  return CublasLt::kWorkspace;
}

// 4-bit weights as bf16, in scratch.
size_t dequantized_bytes(const MatmulProblem& p) { return static_cast<size_t>(p.n * p.k) * 2; }
MatmulProblem dequantized(MatmulProblem p) {
  p.layout = WeightLayout::kSource;
  p.format = WeightFormat::kBF16;
  return p;
}
double dequantize_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr double kLaunch = 2e-6;
  constexpr double kShare = 0.8;  // of the bandwidth
  return kLaunch +
         (weight_size(p) + static_cast<double>(dequantized_bytes(p))) / (kShare * caps.bandwidth);
}
double gemm_int4_cost(const device::Caps& caps, const MatmulProblem& p) {
  return dequantize_cost(caps, p) + gemm_cost(caps, dequantized(p));
}
size_t gemm_int4_scratch(const device::Caps& /*caps*/, const MatmulProblem& p) {
  return dequantized_bytes(p);
}
bool cublaslt_int4_supports(const device::Caps& caps, const MatmulProblem& p) {
  return p.library && !p.gated && !p.bias && gemm_int4_supports(caps, p);
}
double cublaslt_int4_cost(const device::Caps& caps, const MatmulProblem& p) {
  return dequantize_cost(caps, p) + cublaslt_cost(caps, dequantized(p));
}
size_t cublaslt_int4_scratch(const device::Caps& /*caps*/, const MatmulProblem& p) {
  return dequantized_bytes(p) + CublasLt::kWorkspace;
}

double plain_attention_cost(const device::Caps& /*caps*/, const AttentionProblem& p) {
  constexpr double kKeys = 1e10;  // a second, over all heads
  constexpr double kLaunch = 6e-6;
  return kLaunch +
         static_cast<double>(p.rows) * static_cast<double>(p.max_context) * p.heads / kKeys;
}

int64_t decode_head_blocks(const AttentionProblem& p) {
  constexpr int64_t kHeadsABlock = 8;
  return (p.heads / p.kv_heads + kHeadsABlock - 1) / kHeadsABlock;
}

size_t decode_counter_bytes(const AttentionProblem& p) {
  constexpr int64_t kMostSequences = 1024;
  return static_cast<size_t>(kMostSequences * p.kv_heads * decode_head_blocks(p)) * 4;
}

// What both kernels over pages with matrix units ask for.
bool paged_supports(const device::Caps& caps, const AttentionProblem& p) {
  if (!caps.is_hopper() || p.query_type != DType::kBF16 || p.out_type != DType::kBF16) return false;
  const bool pages = (p.format == KvFormat::kBF16 || p.format == KvFormat::kFp8) &&
                     (p.head_dim == 64 || p.head_dim == 128 || p.head_dim == 256);
  return pages && !p.alibi && p.block_tokens % 16 == 0;
}

// Without tensor cores, and keys and values are read for every row and head.
bool plain_attention_supports(const device::Caps& caps, const AttentionProblem& p) {
  return caps.is_hopper() && p.head_dim % 8 == 0 && p.head_dim <= 256 &&
         !(p.invariant && paged_supports(caps, p));
}

bool paged_decode_supports(const device::Caps& caps, const AttentionProblem& p) {
  return paged_supports(caps, p) && !p.invariant && p.max_rows == 1 && p.rows <= 1024 &&
         decode_counter_bytes(p) <= kZeroedBytes;
}

double paged_decode_cost(const device::Caps& caps, const AttentionProblem& p) {
  constexpr double kLaunch = 4e-6;
  constexpr double kShare = 0.7;  // of the bandwidth
  const double bytes = 2.0 * static_cast<double>(p.rows * p.max_context) * p.kv_heads * p.head_dim *
                       kv_element_bytes(p.format);
  return kLaunch + bytes / (kShare * caps.bandwidth);
}

bool paged_prefill_supports(const device::Caps& caps, const AttentionProblem& p) {
  return paged_supports(caps, p) && p.num_sequences <= 1024 && p.heads / p.kv_heads <= 128;
}

// A decoding row takes a whole tile, and a sequence's keys are not split.
double paged_prefill_cost(const device::Caps& caps, const AttentionProblem& p) {
  constexpr double kLaunch = 1e-6;          // more than a decode's
  constexpr double kMultiplyAdds = 200e12;  // a second
  const double arithmetic = static_cast<double>(p.rows * p.max_context) * p.heads * p.head_dim;
  return kLaunch + paged_decode_cost(caps, p) + arithmetic / kMultiplyAdds;
}

size_t paged_prefill_scratch(const device::Caps& /*caps*/, const AttentionProblem& /*p*/) {
  return 16;  // kPagedPrefillWorkspace
}

// As paged_decode_workspace counts, its counters included.
size_t paged_decode_scratch(const device::Caps& /*caps*/, const AttentionProblem& p) {
  const int64_t chunks = std::clamp<int64_t>((p.max_context + 15 + 255) / 256, 1, 33);
  return decode_counter_bytes(p) +
         static_cast<size_t>(p.rows * chunks * p.heads * (p.head_dim + 2)) * 4;
}

size_t no_matmul_scratch(const device::Caps& /*caps*/, const MatmulProblem& /*p*/) { return 0; }
size_t no_attention_scratch(const device::Caps& /*caps*/, const AttentionProblem& /*p*/) {
  return 0;
}

constexpr MatmulEntry kMatmul[] = {
    {"small_m", small_m_supports, small_m_cost, no_matmul_scratch, matmul_small_m},
    {"wide_m", wide_m_supports, wide_m_cost, no_matmul_scratch, matmul_wide_m},
    {"wide_m_fp8", wide_m_fp8_supports, wide_m_fp8_cost, gemm_codes_scratch, matmul_wide_m_fp8},
    {"gemm", gemm_supports, gemm_cost, no_matmul_scratch, matmul_gemm},
    {"cublaslt", cublaslt_supports, cublaslt_cost, cublaslt_scratch, matmul_cublaslt},
    {"gemm_fp8", gemm_fp8_supports, gemm_codes_cost, gemm_codes_scratch, matmul_gemm_codes},
    {"gemm_int8", gemm_int8_supports, gemm_codes_cost, gemm_codes_scratch, matmul_gemm_codes},
    {"cublaslt_fp8", cublaslt_fp8_supports, cublaslt_fp8_cost, cublaslt_fp8_scratch,
     matmul_cublaslt_fp8},
    {"gemm_int4", gemm_int4_supports, gemm_int4_cost, gemm_int4_scratch, matmul_gemm_int4},
    {"cublaslt_int4", cublaslt_int4_supports, cublaslt_int4_cost, cublaslt_int4_scratch,
     matmul_cublaslt_int4},
    {"plain", plain_matmul_supports, plain_matmul_cost, no_matmul_scratch, matmul_plain},
};

constexpr AttentionEntry kAttention[] = {
    {"paged_decode", paged_decode_supports, paged_decode_cost, paged_decode_scratch,
     attention_paged_decode},
    {"paged_prefill", paged_prefill_supports, paged_prefill_cost, paged_prefill_scratch,
     attention_paged_prefill},
    {"plain", plain_attention_supports, plain_attention_cost, no_attention_scratch,
     attention_plain},
};

}  // namespace

const DeviceKernels& device_kernels() {
  static constexpr DeviceKernels kKernels = {.matmul = kMatmul,
                                             .attention = kAttention,
                                             .rms_norm = rms_norm,
                                             .layer_norm = layer_norm,
                                             .rope_angles = rope_angles,
                                             .rope = rope,
                                             .activate = activate,
                                             .soft_cap = soft_cap,
                                             .add = add,
                                             .gather_rows = gather_rows,
                                             .embedding = embedding,
                                             .append = append,
                                             .take_tokens = take_tokens,
                                             .sample = sample,
                                             .prepare = prepare,
                                             .random_weights = random_weights,
                                             .copy = copy,
                                             .zeroed_bytes = kZeroedBytes};
  return kKernels;
}

}  // namespace pelton::kernels::cuda
