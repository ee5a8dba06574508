#include "kernels/ref/device_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/splitmix.h"
#include "kernels/cpu/packing.h"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/params/device_weights.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/rows.h"
#include "kernels/ref/sampling.h"

namespace pelton::kernels::ref {
namespace {

template <typename Params>
using Body = void (*)(const Params& params);

// Queues the body and reports like a launch.
template <typename Params, Body<Params> kBody>
Status launch(const Params& params, device::Stream& stream) {
  if (Status s = stream.call([params] { kBody(params); }); !s.ok()) return s;
  return stream.launched("reference");
}

std::span<const float> part(const float* data, int64_t count) {
  return {data, static_cast<size_t>(count)};
}

// `count` activations of row t from column `skip` on, as floats.
std::vector<float> load(const Rows& rows, int64_t t, int64_t skip, int64_t count) {
  const int64_t at = t * rows.stride + skip;
  if (rows.type == DType::kF32) {
    const float* x = static_cast<const float*>(rows.data) + at;
    return {x, x + count};
  }
  const uint16_t* x = static_cast<const uint16_t*>(rows.data) + at;
  std::vector<float> out(static_cast<size_t>(count));
  std::transform(x, x + count, out.begin(), bf16_to_f32);
  return out;
}

void store(const Rows& rows, int64_t t, int64_t skip, std::span<const float> values) {
  const int64_t at = t * rows.stride + skip;
  if (rows.type == DType::kF32) {
    std::ranges::copy(values, static_cast<float*>(rows.data) + at);
  } else {
    std::ranges::transform(values, static_cast<uint16_t*>(rows.data) + at, f32_to_bf16);
  }
}

// norm(x) of every group into out, or added to it.
template <typename Norm>
void norm_rows(const NormParams& p, const Norm& norm) {
  std::vector<float> row(static_cast<size_t>(p.d));
  for (int64_t i = 0; i < p.rows * p.groups; ++i) {
    const int64_t t = i / p.groups;
    const int64_t skip = i % p.groups * p.d;
    norm(load(p.x, t, skip, p.d), row);
    if (p.accumulate) {
      const std::vector<float> before = load(p.out, t, skip, p.d);
      std::ranges::transform(before, row, row.begin(), std::plus<float>());
    }
    store(p.out, t, skip, row);
  }
}

void rms_norm_rows(const NormParams& p) {
  norm_rows(p, [&](std::span<const float> x, std::span<float> out) {
    rms_norm(x, part(p.weight, p.d), static_cast<double>(p.eps), out);
  });
}

void layer_norm_rows(const NormParams& p) {
  norm_rows(p, [&](std::span<const float> x, std::span<float> out) {
    layer_norm(x, part(p.weight, p.d),
               p.bias == nullptr ? std::span<const float>() : part(p.bias, p.d),
               static_cast<double>(p.eps), out);
  });
}

void rope_angles(const RopeAnglesParams& p) {
  for (int64_t t = 0; t < p.rows; ++t) {
    for (int64_t i = 0; i < p.half; ++i) {
      const double angle = static_cast<float>(p.positions[t]) * p.inv_freq[i];
      p.cosines[t * p.half + i] = static_cast<float>(std::cos(angle)) * p.magnitude;
      p.sines[t * p.half + i] = static_cast<float>(std::sin(angle)) * p.magnitude;
    }
  }
}

void rope_rows(const RopeParams& p) {
  for (int64_t t = 0; t < p.rows; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      std::vector<float> head = load(p.x, t, h * p.head_dim, p.head_dim);
      rope(head, part(p.cosines + t * p.half, p.half), part(p.sines + t * p.half, p.half),
           p.adjacent);
      store(p.x, t, h * p.head_dim, head);
    }
  }
}

float activation_of(DeviceActivation activation, float x) {
  static constexpr double (*kFunctions[])(double) = {silu, gelu, gelu_tanh, relu};
  return static_cast<float>(kFunctions[static_cast<size_t>(activation)](static_cast<double>(x)));
}

void activate_rows(const ActivateParams& p) {
  for (int64_t t = 0; t < p.rows; ++t) {
    std::vector<float> row = load(p.gate, t, 0, p.columns);
    for (float& v : row) v = activation_of(p.activation, v);
    if (p.up.data != nullptr) {
      const std::vector<float> up = load(p.up, t, 0, p.columns);
      std::ranges::transform(row, up, row.begin(), std::multiplies<float>());
    }
    store(p.out, t, 0, row);
  }
}

void soft_cap_rows(const SoftCapParams& p) {
  const auto cap = static_cast<double>(p.cap);
  for (int64_t t = 0; t < p.rows; ++t) {
    std::vector<float> row = load(p.x, t, 0, p.columns);
    for (float& v : row) v = static_cast<float>(cap * std::tanh(static_cast<double>(v) / cap));
    store(p.x, t, 0, row);
  }
}

void add_rows(const AddParams& p) {
  for (int64_t t = 0; t < p.rows; ++t) {
    std::vector<float> row = load(p.x, t, 0, p.columns);
    const std::vector<float> other = load(p.y, t, 0, p.columns);
    std::ranges::transform(row, other, row.begin(), std::plus<float>());
    store(p.x, t, 0, row);
  }
}

void gather(const GatherParams& p) {
  for (int64_t t = 0; t < p.rows; ++t) store(p.out, t, 0, load(p.x, p.indices[t], 0, p.columns));
}

void embed(const EmbeddingParams& p) {
  const int64_t element = weight_format_info(p.format).block_bytes;
  std::vector<float> out(static_cast<size_t>(p.columns));
  for (int64_t t = 0; t < p.rows; ++t) {
    const WeightMatrix row = {p.table + p.ids[t] * p.columns * element,
                              static_cast<size_t>(p.columns * element),
                              1,
                              p.columns,
                              p.format,
                              WeightLayout::kSource};
    dequantize_weight_row(row, 0, out.data());
    for (float& v : out) v *= p.scale;
    store(p.out, t, 0, out);
  }
}

// Where one token's codes of one head lie, and its scale in int8 pages.
struct Place {
  std::byte* codes;
  float* scale;
};
Place place(const KvLayerView& cache, std::byte* base, int32_t block, int32_t slot, int32_t head) {
  const int64_t token_bytes = int64_t{cache.head_dim} * kv_element_bytes(cache.format);
  std::byte* start = base + static_cast<size_t>(block) * cache.block_bytes +
                     head * cache.block_tokens * kv_head_token_bytes(cache.format, cache.head_dim);
  return {start + slot * token_bytes,
          reinterpret_cast<float*>(start + cache.block_tokens * token_bytes) + slot};
}

template <typename T>
void put(std::byte* at, int64_t i, T value) {
  std::memcpy(at + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}
template <typename T>
T get(const std::byte* at, int64_t i) {
  T value;
  std::memcpy(&value, at + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void store(const KvLayerView& cache, const Place& to, const float* values) {
  float largest = 0;
  for (int32_t i = 0; i < cache.head_dim; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float scale = largest / 127.0f;
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (int32_t i = 0; i < cache.head_dim; ++i) {
    const float v = values[i];
    switch (cache.format) {
      case KvFormat::kF32:
        put(to.codes, i, v);
        break;
      case KvFormat::kF16:
        put(to.codes, i, f32_to_f16(v));
        break;
      case KvFormat::kBF16:
        put(to.codes, i, f32_to_bf16(v));
        break;
      case KvFormat::kFp8:
        put(to.codes, i, f32_to_fp8(v));
        break;
      case KvFormat::kInt8:
        put(to.codes, i,
            static_cast<int8_t>(std::nearbyint(std::clamp(v * inverse, -127.0f, 127.0f))));
        break;
    }
  }
  if (cache.format == KvFormat::kInt8) *to.scale = scale;
}

void fetch(const KvLayerView& cache, const Place& from, float* values) {
  for (int32_t i = 0; i < cache.head_dim; ++i) {
    switch (cache.format) {
      case KvFormat::kF32:
        values[i] = get<float>(from.codes, i);
        break;
      case KvFormat::kF16:
        values[i] = f16_to_f32(get<uint16_t>(from.codes, i));
        break;
      case KvFormat::kBF16:
        values[i] = bf16_to_f32(get<uint16_t>(from.codes, i));
        break;
      case KvFormat::kFp8:
        values[i] = fp8_to_f32(get<uint8_t>(from.codes, i));
        break;
      case KvFormat::kInt8:
        values[i] = static_cast<float>(get<int8_t>(from.codes, i)) * *from.scale;
        break;
    }
  }
}

void append_rows(const AppendParams& p) {
  const KvLayerView& cache = p.cache;
  for (int64_t t = 0; t < p.rows; ++t) {
    if (p.slots[t] < 0) continue;
    const int32_t block = p.slots[t] / cache.block_tokens;
    const int32_t slot = p.slots[t] % cache.block_tokens;
    for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
      const int64_t skip = int64_t{h} * cache.head_dim;
      const auto place_of = [&](std::byte* base) { return place(cache, base, block, slot, h); };
      store(cache, place_of(cache.keys), load(p.keys, t, skip, cache.head_dim).data());
      store(cache, place_of(cache.values), load(p.values, t, skip, cache.head_dim).data());
    }
  }
}

// Keys and values of one KV head of one sequence, as floats.
struct Head {
  std::vector<float> keys;
  std::vector<float> values;
};
Head fetch_head(const KvLayerView& cache, const int32_t* blocks, int32_t tokens, int32_t head) {
  const auto d = static_cast<size_t>(cache.head_dim);
  Head all{std::vector<float>(static_cast<size_t>(tokens) * d),
           std::vector<float>(static_cast<size_t>(tokens) * d)};
  for (int32_t t = 0; t < tokens; ++t) {
    const int32_t block = blocks[t / cache.block_tokens];
    const int32_t slot = t % cache.block_tokens;
    fetch(cache, place(cache, cache.keys, block, slot, head),
          all.keys.data() + static_cast<size_t>(t) * d);
    fetch(cache, place(cache, cache.values, block, slot, head),
          all.values.data() + static_cast<size_t>(t) * d);
  }
  return all;
}

void attend(const AttentionParams& p) {
  const KvLayerView& cache = p.cache;
  const int32_t group = p.problem.heads / cache.num_kv_heads;
  for (int64_t i = 0; i < p.problem.num_sequences; ++i) {
    const SequenceSlice& s = p.sequences[i];
    const auto* blocks = reinterpret_cast<const int32_t*>(reinterpret_cast<uintptr_t>(s.blocks) +
                                                          static_cast<uintptr_t>(p.table_shift));
    for (int32_t h = 0; h < p.problem.heads; ++h) {
      const Head head = fetch_head(cache, blocks, s.context_len, h / group);
      for (int32_t row = 0; row < s.num_rows; ++row) {
        const int64_t t = s.first_row + row;
        const int64_t skip = int64_t{h} * cache.head_dim;
        std::vector<float> out(static_cast<size_t>(cache.head_dim));
        const int32_t position = s.context_len - s.num_rows + row;
        if (position >= 0) {
          const std::vector<float> query = load(p.queries, t, skip, cache.head_dim);
          const AttentionAnswer answer = attention({.query = query,
                                                    .keys = head.keys.data(),
                                                    .values = head.values.data(),
                                                    .stride = cache.head_dim,
                                                    .position = position,
                                                    .head = h},
                                                   p.variant);
          std::ranges::transform(answer.out, out.begin(),
                                 [](double v) { return static_cast<float>(v); });
        }
        store(p.out, t, skip, out);
      }
    }
  }
}

// Row n of the weights of a product.
void dequantize_row(const MatmulParams& p, int64_t n, float* out) {
  const MatmulProblem& q = p.problem;
  const WeightMatrix weight = {p.weight, 0, q.n, q.k, q.format, q.layout};
  if (q.layout == WeightLayout::kSource) {
    dequantize_weight_row(weight, n, out);
  } else {
    dequantize_device_row(weight, n, out);
  }
}

// W x of every row: [m][n]. A row of W is unpacked once for all of them.
std::vector<double> products(const MatmulParams& p) {
  const MatmulProblem& q = p.problem;
  std::vector<std::vector<float>> x;
  for (int64_t t = 0; t < q.m; ++t) x.push_back(load(p.x, t, 0, q.k));
  std::vector<double> sums(static_cast<size_t>(q.m * q.n));
  std::vector<float> row(static_cast<size_t>(q.k));
  for (int64_t n = 0; n < q.n; ++n) {
    dequantize_row(p, n, row.data());
    const float* w = row.data();
    for (int64_t t = 0; t < q.m; ++t) {
      const float* other = x[static_cast<size_t>(t)].data();
      double sum = 0;
      for (int64_t k = 0; k < q.k; ++k)
        sum += static_cast<double>(w[k]) * static_cast<double>(other[k]);
      sums[static_cast<size_t>(t * q.n + n)] = sum;
    }
  }
  return sums;
}

void multiply(const MatmulParams& p) {
  const MatmulProblem& q = p.problem;
  std::vector<double> all = products(p);
  const int64_t columns = q.gated ? q.n / 2 : q.n;
  for (int64_t t = 0; t < q.m; ++t) {
    const std::span<double> sums =
        std::span(all).subspan(static_cast<size_t>(t * q.n), static_cast<size_t>(q.n));
    if (p.bias != nullptr) {
      for (int64_t n = 0; n < q.n; ++n)
        sums[static_cast<size_t>(n)] += static_cast<double>(p.bias[n]);
    }
    std::vector<float> out(static_cast<size_t>(columns));
    if (q.accumulate) out = load(p.out, t, 0, columns);
    for (int64_t n = 0; n < columns; ++n) {
      const auto i = static_cast<size_t>(n);
      double value = sums[i];
      if (q.gated) {
        value = static_cast<double>(activation_of(q.activation, static_cast<float>(value))) *
                sums[static_cast<size_t>(columns + n)];
      }
      out[i] = static_cast<float>(value + static_cast<double>(out[i]));
    }
    store(p.out, t, 0, out);
  }
}

template <typename Problem>
constexpr auto always = [](const device::Caps&, const Problem&) { return true; };
template <typename Problem>
constexpr auto free_of_charge = [](const device::Caps&, const Problem&) { return 0.0; };
template <typename Problem>
constexpr auto no_scratch = [](const device::Caps&, const Problem&) { return size_t{0}; };

// Gated in one where a device would: f32 stays with the CPU's steps and their rounding.
bool multiplies(const device::Caps& /*caps*/, const MatmulProblem& p) {
  return !p.normed && (!p.gated || p.out_type == DType::kBF16);
}

void take_rows(const TakeTokensParams& p) {
  for (int64_t i = 0; i < p.rows; ++i) {
    if (p.ids[i] < 0) p.ids[i] = p.tokens[-1 - p.ids[i]];
  }
}

// Element i of the matrix as a number in [-1, 1).
float random_unit(const RandomWeightsParams& p, int64_t i) {
  return signed_unit(counter_bits(p.key, static_cast<uint64_t>(i) / 4), static_cast<int>(i % 4));
}

void random_int4(const RandomWeightsParams& p) {
  std::vector<uint8_t> codes(static_cast<size_t>(p.rows * p.columns));
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(8 + std::lrint(7.0f * random_unit(p, static_cast<int64_t>(i))));
  const std::vector<uint16_t> scales(codes.size() / cuda::kInt4Group, f32_to_f16(p.spread / 7.0f));
  cuda::int4_pack(codes, scales, p.rows, p.columns,
                  {p.out, device_weight_bytes(p.layout, p.rows, p.columns)});
}

void make_random_weights(const RandomWeightsParams& p) {
  if (p.layout == WeightLayout::kInt4Groups) return random_int4(p);
  for (int64_t i = 0; i < p.rows * p.columns; ++i) {
    const float unit = random_unit(p, i);
    if (p.layout == WeightLayout::kFp8Channels) {
      put(p.out, i, f32_to_fp8(448.0f * unit));
    } else if (p.layout == WeightLayout::kInt8Channels) {
      put(p.out, i, static_cast<int8_t>(std::lrint(127.0f * unit)));
    } else {
      put(p.out, i, f32_to_bf16(p.spread * unit));
    }
  }
  if (p.scale != nullptr)
    std::fill_n(p.scale, p.rows,
                p.spread / (p.layout == WeightLayout::kFp8Channels ? 448.0f : 127.0f));
}

}  // namespace

const DeviceKernels& device_kernels() {
  static constexpr MatmulEntry kMatmul[] = {{"reference", multiplies, free_of_charge<MatmulProblem>,
                                             no_scratch<MatmulProblem>,
                                             launch<MatmulParams, multiply>}};
  static constexpr AttentionEntry kAttention[] = {
      {"reference", always<AttentionProblem>, free_of_charge<AttentionProblem>,
       no_scratch<AttentionProblem>, launch<AttentionParams, attend>}};
  static constexpr DeviceKernels kKernels = {
      .matmul = kMatmul,
      .attention = kAttention,
      .rms_norm = launch<NormParams, rms_norm_rows>,
      .layer_norm = launch<NormParams, layer_norm_rows>,
      .rope_angles = launch<RopeAnglesParams, rope_angles>,
      .rope = launch<RopeParams, rope_rows>,
      .activate = launch<ActivateParams, activate_rows>,
      .soft_cap = launch<SoftCapParams, soft_cap_rows>,
      .add = launch<AddParams, add_rows>,
      .gather_rows = launch<GatherParams, gather>,
      .embedding = launch<EmbeddingParams, embed>,
      .append = launch<AppendParams, append_rows>,
      .take_tokens = launch<TakeTokensParams, take_rows>,
      .sample = launch<SampleParams, sample_rows>,
      .random_weights = launch<RandomWeightsParams, make_random_weights>};
  return kKernels;
}

}  // namespace pelton::kernels::ref
