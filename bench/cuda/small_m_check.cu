// small_m and wide_m against double precision: edges of every format and epilogue, 4,096 sampled
// outputs on the shapes of an 8B model, and equal bits of a row whatever the number of rows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/cuda/matmul/small_m.h"
#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::kInt4BlockBytes;
using kernels::cuda::SmallMArgs;
using kernels::cuda::SmallMEpilogue;
using kernels::cuda::SmallMWeight;

const char* format_name(SmallMWeight format) {
  switch (format) {
    case SmallMWeight::kBF16:
      return "bf16";
    case SmallMWeight::kFp8:
      return "fp8";
    case SmallMWeight::kInt8:
      return "int8";
    default:
      return "int4";
  }
}

// What the layout of int4_pack.h says lies at (row, input).
__host__ __device__ double int4_value(const uint8_t* blocks, int64_t k, int64_t row, int64_t input,
                                      float (*half_to_float)(uint16_t)) {
  const uint8_t* block = blocks + (row / 16 * (k / 128) + input / 128) * kInt4BlockBytes;
  const int r = static_cast<int>(row % 16);
  const int c = static_cast<int>(input % 128);
  const int lane = 4 * (r % 8) + c % 8 / 2;
  const int index = r / 8 + 2 * (c % 16 / 8) + 4 * (c % 2);
  const uint8_t* at = block + c / 64 * 512 + lane * 16 + c % 64 / 16 * 4;
  const uint32_t word = at[0] | at[1] << 8 | at[2] << 16 | static_cast<uint32_t>(at[3]) << 24;
  const int code = static_cast<int>(word >> (4 * (index % 4) + 16 * (index / 4)) & 15);
  const uint16_t scale = static_cast<uint16_t>(block[1024 + 2 * r] | block[1024 + 2 * r + 1] << 8);
  return (code - 8) * static_cast<double>(half_to_float(scale));
}

__device__ float device_half(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

__device__ float rounded(float v) { return __bfloat162float(__float2bfloat16_rn(v)); }
__device__ float device_half_bf16(uint16_t bits) { return rounded(device_half(bits)); }

// `wide`: 4-bit weights are rounded as wide_m.h says.
__device__ double weight_at(const SmallMArgs& a, bool wide, int64_t row, int64_t input) {
  switch (a.format) {
    case SmallMWeight::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(a.weight)[row * a.k + input]);
    case SmallMWeight::kFp8:
      return static_cast<double>(
                 float(static_cast<const __nv_fp8_e4m3*>(a.weight)[row * a.k + input])) *
             a.scale[row];
    case SmallMWeight::kInt8:
      return static_cast<double>(static_cast<const int8_t*>(a.weight)[row * a.k + input]) *
             a.scale[row];
    default:
      if (wide) {
        return rounded(static_cast<float>(
            int4_value(static_cast<const uint8_t*>(a.weight), a.k, row, input, device_half_bf16)));
      }
      return int4_value(static_cast<const uint8_t*>(a.weight), a.k, row, input, device_half);
  }
}

// Of x, which wide_m takes as codes with a scale a row where the weights are FP8.
__device__ double input_at(const SmallMArgs& a, const float* x_scale, int64_t row, int64_t input) {
  const int64_t at = row * a.x_stride + input;
  if (x_scale != nullptr)
    return static_cast<double>(float(static_cast<const __nv_fp8_e4m3*>(a.x)[at])) * x_scale[row];
  return __bfloat162float(static_cast<const __nv_bfloat16*>(a.x)[at]);
}

// answers[i] = the value and magnitudes[i] the sum of absolute terms of output outputs[i] = row *
// columns + column. One warp an output.
__global__ void reference_kernel(SmallMArgs a, bool wide, const float* x_scale,
                                 const int32_t* outputs, int count, int columns, double* answers,
                                 double* magnitudes) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (index >= count) return;
  const int row = outputs[index] / columns;
  const int column = outputs[index] % columns;
  const auto linear = [&](int j, double& magnitude) {
    double sum = 0;
    magnitude = 0;
    for (int64_t i = lane; i < a.k; i += 32) {
      const double term = input_at(a, x_scale, row, i) * weight_at(a, wide, j, i);
      sum += term;
      magnitude += fabs(term);
    }
    for (int step = 16; step > 0; step /= 2) {
      sum += __shfl_xor_sync(~0u, sum, step);
      magnitude += __shfl_xor_sync(~0u, magnitude, step);
    }
    if (a.bias != nullptr) sum += a.bias[j];
    return sum;
  };
  double magnitude;
  double value = linear(column, magnitude);
  if (a.epilogue == SmallMEpilogue::kSiluMul) {
    double up_magnitude;
    const double up = linear(column + a.n / 2, up_magnitude);
    const double silu = value / (1 + exp(-value));
    magnitude = 1.1 * magnitude * fabs(up) + fabs(silu) * up_magnitude + fabs(silu * up) * 16;
    value = silu * up;
  }
  if (a.residual != nullptr) {
    const int64_t at = row * a.out_stride + column;
    value += a.out_f32 ? static_cast<const float*>(a.residual)[at]
                       : __bfloat162float(static_cast<const __nv_bfloat16*>(a.residual)[at]);
  }
  if (lane == 0) {
    answers[index] = value;
    magnitudes[index] = magnitude;
  }
}

struct Case {
  SmallMWeight format = SmallMWeight::kBF16;
  int m = 1;
  int n = 16;
  int k = 256;
  SmallMEpilogue epilogue = SmallMEpilogue::kNone;
  bool out_f32 = true;
  bool bias = false;
  bool residual = false;
  bool wide = false;  // by wide_m
};

std::string describe(const Case& c) {
  return std::string(c.wide ? "wide " : "") + format_name(c.format) + " m" + std::to_string(c.m) +
         " n" + std::to_string(c.n) + " k" + std::to_string(c.k) +
         (c.epilogue == SmallMEpilogue::kSiluMul ? " silu" : "") + (c.out_f32 ? " f32" : " bf16") +
         (c.bias ? " bias" : "") + (c.residual ? " residual" : "");
}

struct Operands {
  Buffer x;
  Buffer weight;
  Buffer scale;
  Buffer bias;
  Buffer residual;
  Buffer x_scale;  // of wide_m with FP8 weights, else empty
};

Operands make_operands(const Case& c, uint64_t seed) {
  const size_t n = static_cast<size_t>(c.n);
  const size_t k = static_cast<size_t>(c.k);
  const size_t rows = c.wide ? 128 : 32;
  Operands o;
  o.x = Buffer(rows * k * 2);
  if (c.wide && c.format == SmallMWeight::kFp8) {
    fill(o.x, Fill::kNormalFp8, 1.0f, seed);
    o.x_scale = Buffer(rows * 4);
    fill(o.x_scale, Fill::kFloats, 1.0f, seed + 5);
  } else {
    fill(o.x, Fill::kNormalBF16, 1.0f, seed);
  }
  switch (c.format) {
    case SmallMWeight::kBF16:
      o.weight = Buffer(n * k * 2);
      fill(o.weight, Fill::kNormalBF16, 0.03f, seed + 1);
      break;
    case SmallMWeight::kFp8:  // deviation 0.05: a good part are E4M3's subnormals
      o.weight = Buffer(n * k);
      fill(o.weight, Fill::kNormalFp8, 0.05f, seed + 1);
      break;
    case SmallMWeight::kInt8:
      o.weight = Buffer(n * k);
      fill(o.weight, Fill::kAnyBytes, 1.0f, seed + 1);
      break;
    case SmallMWeight::kInt4G128:
      o.weight = Buffer(kernels::cuda::int4_packed_bytes(c.n, c.k));
      fill(o.weight, Fill::kInt4Blocks, 0.01f, seed + 1);
      break;
  }
  o.scale = Buffer(n * 4);
  fill(o.scale, Fill::kFloats, 0.5f, seed + 2);
  o.bias = Buffer(n * 4);
  fill(o.bias, Fill::kFloats, 1.0f, seed + 3);
  o.residual = Buffer(rows * n * 4);
  fill(o.residual, c.out_f32 ? Fill::kFloats : Fill::kNormalBF16, 1.0f, seed + 4);
  return o;
}

SmallMArgs make_args(const Case& c, const Operands& o, const Buffer& out) {
  SmallMArgs a;
  a.x = o.x.as<void>();
  a.x_stride = c.k;
  a.weight = o.weight.as<void>();
  a.format = c.format;
  a.epilogue = c.epilogue;
  const bool is_scaled = c.format == SmallMWeight::kFp8 || c.format == SmallMWeight::kInt8;
  a.scale = is_scaled ? o.scale.as<float>() : nullptr;
  a.bias = c.bias ? o.bias.as<float>() : nullptr;
  a.residual = c.residual ? o.residual.as<void>() : nullptr;
  a.out = out.as<void>();
  a.out_stride = c.epilogue == SmallMEpilogue::kSiluMul ? c.n / 2 : c.n;
  a.out_f32 = c.out_f32;
  a.m = c.m;
  a.n = c.n;
  a.k = c.k;
  return a;
}

const float* x_scale_of(const Case& c, const Operands& o) {
  return c.wide && c.format == SmallMWeight::kFp8 ? o.x_scale.as<float>() : nullptr;
}

cudaError_t launch(const Case& c, const Operands& o, const SmallMArgs& args) {
  if (!c.wide) return kernels::cuda::launch_small_m(args, nullptr);
  return kernels::cuda::launch_wide_m({args, x_scale_of(c, o)}, nullptr);
}

float output_at(const std::vector<uint8_t>& bytes, size_t at, bool is_f32) {
  if (is_f32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * at, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * at, 2);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Of sums, as a power of two of their magnitude.
int rounding_of(const Case& c) {
  if (c.wide) return c.format == SmallMWeight::kFp8 ? -9 : -18;
  return c.format == SmallMWeight::kInt4G128 ? -16 : -18;
}

// Runs the case and compares up to `samples` outputs; the output is poisoned before.
void check_case(Report& report, const Case& c, const Operands& operands, int samples) {
  const int columns = c.epilogue == SmallMEpilogue::kSiluMul ? c.n / 2 : c.n;
  const size_t total = static_cast<size_t>(c.m) * static_cast<size_t>(columns);
  const size_t width = c.out_f32 ? 4 : 2;
  Buffer out(total * width);
  require(cudaMemset(out.as<void>(), 0xff, total * width), "poison");  // NaN
  const SmallMArgs args = make_args(c, operands, out);
  require(launch(c, operands, args), describe(c).c_str());
  require(cudaDeviceSynchronize(), describe(c).c_str());

  const int count = static_cast<int>(std::min<size_t>(total, static_cast<size_t>(samples)));
  std::vector<int32_t> outputs(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    outputs[static_cast<size_t>(i)] =
        static_cast<int32_t>(total * static_cast<size_t>(i) / static_cast<size_t>(count));
  }
  const Buffer wanted = upload(outputs);
  Buffer answers(outputs.size() * 8);
  Buffer magnitudes(outputs.size() * 8);
  reference_kernel<<<static_cast<unsigned>((count + 3) / 4), 128>>>(
      args, c.wide, x_scale_of(c, operands), wanted.as<int32_t>(), count, columns,
      answers.as<double>(), magnitudes.as<double>());
  require(cudaGetLastError(), "reference");
  require(cudaDeviceSynchronize(), "reference");
  const std::vector<uint8_t> got = download<uint8_t>(out, total * width);
  const std::vector<double> expected = download<double>(answers, outputs.size());
  const std::vector<double> magnitude = download<double>(magnitudes, outputs.size());
  double worst = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double value = output_at(got, static_cast<size_t>(outputs[i]), c.out_f32);
    const double allowed =
        std::ldexp(magnitude[i], rounding_of(c)) + 1e-30 +
        (c.out_f32 ? std::ldexp(1, -22) : std::ldexp(1, -8)) * std::fabs(expected[i]);
    const double error = std::fabs(value - expected[i]) / allowed;
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  bool is_written = true;
  for (size_t i = 0; i < total; ++i) is_written &= !std::isnan(output_at(got, i, c.out_f32));
  check(report, worst <= 1 && is_written,
        describe(c) + ": error " + std::to_string(worst) + " of the bound" +
            (is_written ? "" : ", outputs missing"));
}

// Rows of an m-row product have the bits of a product of that row alone.
void check_invariance(Report& report, Case c) {
  c.m = 32;
  c.out_f32 = true;
  const Operands operands = make_operands(c, 99);
  const size_t columns =
      static_cast<size_t>(c.epilogue == SmallMEpilogue::kSiluMul ? c.n / 2 : c.n);
  Buffer out(32 * columns * 4);
  std::vector<uint8_t> alone(32 * columns * 4);
  for (size_t row = 0; row < 32; ++row) {
    c.m = 1;
    SmallMArgs args = make_args(c, operands, out);
    args.x = operands.x.as<void>(row * static_cast<size_t>(c.k) * 2);
    require(kernels::cuda::launch_small_m(args, nullptr), "row alone");
    require(cudaMemcpy(alone.data() + row * columns * 4, out.as<void>(), columns * 4,
                       cudaMemcpyDeviceToHost),
            "row alone");
  }
  for (const int m : {2, 3, 7, 8, 9, 15, 16, 17, 32}) {
    c.m = m;
    require(kernels::cuda::launch_small_m(make_args(c, operands, out), nullptr), "rows together");
    require(cudaDeviceSynchronize(), "rows together");
    const size_t bytes = static_cast<size_t>(m) * columns * 4;
    const std::vector<uint8_t> got = download<uint8_t>(out, bytes);
    check(report, std::memcmp(got.data(), alone.data(), bytes) == 0,
          describe(c) + ": bits differ from a row alone");
  }
}

// Rows of wide_m have the same bits in a product of any number of rows.
void check_wide_invariance(Report& report, Case c) {
  c.wide = true;
  c.m = 128;
  const Operands operands = make_operands(c, 98);
  const size_t columns =
      static_cast<size_t>(c.epilogue == SmallMEpilogue::kSiluMul ? c.n / 2 : c.n);
  Buffer out(128 * columns * 4);
  std::vector<uint8_t> all;
  for (const int m : {128, 127, 65, 64, 33, 32, 17, 16, 9, 1}) {
    c.m = m;
    require(launch(c, operands, make_args(c, operands, out)), "rows together");
    require(cudaDeviceSynchronize(), "rows together");
    const size_t bytes = static_cast<size_t>(m) * columns * 4;
    const std::vector<uint8_t> got = download<uint8_t>(out, bytes);
    if (m == 128) all = got;
    check(report, std::memcmp(got.data(), all.data(), bytes) == 0,
          describe(c) + ": bits differ from those among 128 rows");
  }
}

// The sum that a butterfly over the 32 lanes of a warp gives each of them.
float butterfly(std::vector<float> lanes) {
  for (size_t step = 16; step > 0; step /= 2) {
    const std::vector<float> before = lanes;
    for (size_t i = 0; i < 32; ++i) lanes[i] = before[i] + before[i ^ step];
  }
  return lanes[0];
}

// RMS norm of a row with the order of sums of elementwise/norm.cu, as bits of bf16.
std::vector<uint16_t> norm_row(const float* x, const std::vector<float>& weight, float eps) {
  const size_t d = weight.size();
  const size_t threads = std::clamp<size_t>((d / 4 + 31) / 32 * 32, 32, 1024);
  std::vector<float> warps(32, 0.0f);
  for (size_t warp = 0; warp < threads / 32; ++warp) {
    std::vector<float> lanes(32, 0.0f);
    for (size_t lane = 0; lane < 32; ++lane) {
      for (size_t at = 4 * (32 * warp + lane); at < d; at += 4 * threads) {
        for (size_t e = 0; e < 4; ++e) lanes[lane] = std::fma(x[at + e], x[at + e], lanes[lane]);
      }
    }
    warps[warp] = butterfly(lanes);
  }
  const float scale = 1.0f / std::sqrt(butterfly(warps) / static_cast<float>(d) + eps);
  std::vector<uint16_t> out(d);
  for (size_t i = 0; i < d; ++i) {
    const volatile float scaled = x[i] * scale;
    const float value = scaled * weight[i];
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    out[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  return out;
}

// Norms inside the product give the bits of a product of rows that were normalised before.
void check_norm(Report& report, Case c) {
  Operands operands = make_operands(c, 97);
  const size_t k = static_cast<size_t>(c.k);
  const size_t m = static_cast<size_t>(c.m);
  std::vector<float> x(m * k);
  std::vector<float> weight(k);
  uint32_t state = 7;
  const auto next = [&] {
    return static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) *
           0x1p-31f;
  };
  for (float& v : x) v = 3.0f * next();
  for (float& v : weight) v = 1.0f + 0.5f * next();
  std::vector<uint16_t> normed;
  for (size_t row = 0; row < m; ++row) {
    const std::vector<uint16_t> values = norm_row(x.data() + row * k, weight, 1e-5f);
    normed.insert(normed.end(), values.begin(), values.end());
  }
  operands.x = upload(normed);
  const Buffer rows = upload(x);
  const Buffer weights = upload(weight);
  const size_t bytes =
      m * static_cast<size_t>(c.epilogue == SmallMEpilogue::kSiluMul ? c.n / 2 : c.n) * 4;
  std::vector<uint8_t> got[2];
  for (const bool inside : {false, true}) {
    Buffer out(bytes);
    SmallMArgs args = make_args(c, operands, out);
    if (inside) {
      args.x = rows.as<void>();
      args.norm_weight = weights.as<float>();
      args.norm_eps = 1e-5f;
    }
    require(kernels::cuda::launch_small_m(args, nullptr), "norm");
    require(cudaDeviceSynchronize(), "norm");
    got[inside ? 1 : 0] = download<uint8_t>(out, bytes);
  }
  check(report, got[0] == got[1], describe(c) + ": bits differ with the norm inside");
}

// int4_pack puts the value of every (row, input) where the layout says.
void check_packing(Report& report) {
  for (const int n : {16, 40}) {
    const int k = 384;
    std::vector<uint8_t> codes(static_cast<size_t>(n * k));
    std::vector<uint16_t> scales(static_cast<size_t>(n * k / 128));
    uint32_t state = 12345;
    for (uint8_t& c : codes) c = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 28);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint16_t>(0x2000 + 7 * i);
    std::vector<std::byte> packed(kernels::cuda::int4_packed_bytes(n, k));
    kernels::cuda::int4_pack(codes, scales, n, k, packed);
    const auto to_float = [](uint16_t bits) { return __half2float(__half_raw{bits}); };
    bool equal = true;
    for (int row = 0; row < n; ++row) {
      for (int input = 0; input < k; ++input) {
        const double expected = (codes[static_cast<size_t>(row * k + input)] - 8) *
                                static_cast<double>(to_float(
                                    scales[static_cast<size_t>(row * (k / 128) + input / 128)]));
        equal &= int4_value(reinterpret_cast<const uint8_t*>(packed.data()), k, row, input,
                            to_float) == expected;
      }
    }
    check(report, equal, "int4_pack n" + std::to_string(n));
  }
}

constexpr SmallMWeight kFormats[] = {SmallMWeight::kBF16, SmallMWeight::kFp8, SmallMWeight::kInt8,
                                     SmallMWeight::kInt4G128};

struct Edge {
  int n;
  int k;
};

}  // namespace

void check_wide_m(Report& report, bool quick) {
  for (const SmallMWeight format : kFormats) {
    const bool is_int4 = format == SmallMWeight::kInt4G128;
    const int step = is_int4 ? 128 : format == SmallMWeight::kBF16 ? 8 : 16;
    const Edge edges[] = {{1, step},     {7, 3 * step},     {33, 256 + step},
                          {96, 5 * 128}, {250, 17 * 128},   {2144, 2048 + step},
                          {4096, 2048},  {17003, 3 * step}, {16992, 256 + step}};
    for (const Edge& e : edges) {
      if (quick && e.n > 300) continue;
      for (const int m : {1, 9, 16, 17, 40, 64, 100, 128}) {
        if (quick && m % 2 == 0) continue;
        Case c = {format, m, e.n, e.k};
        c.wide = true;
        c.bias = m % 2 == 0;
        c.residual = m % 3 != 0;
        c.out_f32 = m % 4 < 2;
        check_case(report, c, make_operands(c, static_cast<uint64_t>(m + e.n)), 4096);
        if (e.n % 2 == 0 && (!is_int4 || e.n % 32 == 0)) {
          c.epilogue = SmallMEpilogue::kSiluMul;
          check_case(report, c, make_operands(c, static_cast<uint64_t>(m + e.n)), 4096);
        }
      }
    }
    check_wide_invariance(report, {format, 128, 96, 2048});
    if (quick) continue;
    check_wide_invariance(report, {format, 128, 4096, 4096});
    check_wide_invariance(report, {format, 128, 6144, 4096});
    check_wide_invariance(report, {format, 128, 28672, 4096, SmallMEpilogue::kSiluMul});
    for (const Edge& e : {Edge{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
      Case c = {format, 1, e.n, e.k};
      c.wide = true;
      if (e.n == 28672) c.epilogue = SmallMEpilogue::kSiluMul;
      const Operands operands = make_operands(c, 5);
      for (const int m : {16, 32, 64, 128}) {
        c.m = m;
        check_case(report, c, operands, 4096);
      }
    }
  }
}

void check_small_m(Report& report, bool quick) {
  check_packing(report);
  for (const SmallMWeight format : kFormats) {
    const bool is_int4 = format == SmallMWeight::kInt4G128;
    const int step = is_int4 ? 128 : format == SmallMWeight::kBF16 ? 8 : 16;
    const Edge edges[] = {{1, step},     {7, 3 * step},   {16, 128},           {33, 256 + step},
                          {96, 5 * 128}, {250, 17 * 128}, {2144, 2048 + step}, {4096, 2048}};
    for (const Edge& e : edges) {
      if (quick && e.n > 300) continue;
      for (const int m : {1, 2, 5, 8, 9, 13, 16, 17, 31, 32}) {
        if (quick && m % 2 == 0) continue;
        Case c = {format, m, e.n, e.k};
        c.bias = m % 2 == 0;
        c.residual = m % 3 != 0;
        c.out_f32 = m % 4 < 2;
        check_case(report, c, make_operands(c, static_cast<uint64_t>(m + e.n)), 4096);
        if (e.n % 2 == 0 && (!is_int4 || e.n % 32 == 0)) {
          c.epilogue = SmallMEpilogue::kSiluMul;
          check_case(report, c, make_operands(c, static_cast<uint64_t>(m + e.n)), 4096);
        }
      }
    }
    Case nothing = {format, 0, 64, 256};
    check(report,
          kernels::cuda::launch_small_m(make_args(nothing, make_operands(nothing, 1), Buffer(256)),
                                        nullptr) == cudaSuccess,
          "no rows");
    check_invariance(report, {format, 32, quick ? 96 : 4096, quick ? 2048 : 4096});
    for (const Edge& e : {Edge{96, step}, {33, 640}, {160, 1152}, {2048, 2048}, {4096, 4096}}) {
      if (quick && e.n > 300) continue;
      for (const int m : {1, 3, e.k <= 2048 ? 8 : 4}) {
        check_norm(report, {format, m, e.n, e.k});
        if (e.n % 32 == 0) check_norm(report, {format, m, e.n, e.k, SmallMEpilogue::kSiluMul});
      }
    }
    if (quick) continue;
    check_invariance(report, {format, 32, 6144, 4096});
    check_invariance(report, {format, 32, 28672, 4096, SmallMEpilogue::kSiluMul});
    check_invariance(report, {format, 32, 4096, 14336});
    const Edge large[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};
    for (const Edge& e : large) {
      Case c = {format, 1, e.n, e.k};
      if (e.n == 28672) c.epilogue = SmallMEpilogue::kSiluMul;
      const Operands operands = make_operands(c, 5);
      for (const int m : {1, 8, 16, 32}) {
        c.m = m;
        check_case(report, c, operands, 4096);
      }
    }
  }
}

}  // namespace pelton::bench_cuda
