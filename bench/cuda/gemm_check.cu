// gemm against double precision: edges of every type, scaling and epilogue, sampled outputs on the
// shapes of an 8B model, and equal bits of a row whatever the number of rows.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/matmul/gemm.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::GemmArgs;
using kernels::cuda::GemmEpilogue;
using kernels::cuda::GemmScales;
using kernels::cuda::GemmType;

struct Case {
  GemmType type = GemmType::kBF16;
  int m = 64;
  int n = 256;
  int k = 256;
  GemmScales scales = GemmScales::kNone;
  bool promote = false;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  bool out_f32 = true;
  bool bias = false;
  bool residual = false;
  bool in_place = false;  // the residual is the output
  int splits = 1;
};

std::string describe(const Case& c) {
  return std::string(c.type == GemmType::kBF16   ? "bf16"
                     : c.type == GemmType::kInt8 ? "int8"
                                                 : "fp8") +
         " m" + std::to_string(c.m) + " n" + std::to_string(c.n) + " k" + std::to_string(c.k) +
         (c.scales == GemmScales::kRows     ? " rows"
          : c.scales == GemmScales::kBlocks ? " blocks"
                                            : "") +
         (c.promote ? " promote" : "") + (c.epilogue == GemmEpilogue::kSiluMul ? " silu" : "") +
         (c.out_f32 ? " f32" : " bf16") + (c.bias ? " bias" : "") +
         (c.residual ? " residual" : "") + (c.in_place ? " in place" : "") +
         (c.splits > 1 ? " splits" + std::to_string(c.splits) : "");
}

struct Operands {
  Buffer x;
  Buffer weight;
  Buffer x_scale;
  Buffer w_scale;
  Buffer bias;
  Buffer residual;
  Buffer split_sums;
};

Operands make_operands(const Case& c, uint64_t seed) {
  const size_t m = static_cast<size_t>(c.m);
  const size_t n = static_cast<size_t>(c.n);
  const size_t k = static_cast<size_t>(c.k);
  const bool is_fp8 = c.type == GemmType::kFp8;
  const bool is_int8 = c.type == GemmType::kInt8;
  const size_t bytes = is_fp8 || is_int8 ? 1 : 2;
  Operands o;
  o.x = Buffer(m * k * bytes);
  fill(o.x, is_int8 ? Fill::kAnyBytes : is_fp8 ? Fill::kNormalFp8 : Fill::kNormalBF16, 1.0f, seed);
  o.weight = Buffer(n * k * bytes);
  fill(o.weight,
       is_int8  ? Fill::kAnyBytes
       : is_fp8 ? Fill::kNormalFp8
                : Fill::kNormalBF16,
       is_fp8 ? 0.2f : 0.03f, seed + 1);
  const size_t boxes = (k + 127) / 128;
  o.x_scale = Buffer(m * (c.scales == GemmScales::kBlocks ? boxes : 1) * 4);
  fill(o.x_scale, Fill::kFloats, 0.5f, seed + 2);
  o.w_scale = Buffer((c.scales == GemmScales::kBlocks ? (n + 127) / 128 * boxes : n) * 4);
  fill(o.w_scale, Fill::kFloats, 0.5f, seed + 3);
  o.bias = Buffer(n * 4);
  fill(o.bias, Fill::kFloats, 1.0f, seed + 4);
  o.residual = Buffer(m * n * 4);
  fill(o.residual, Fill::kFloats, 1.0f, seed + 5);
  if (c.splits > 1) o.split_sums = Buffer(static_cast<size_t>(c.splits) * m * n * 4);
  return o;
}

int columns_of(const Case& c) { return c.epilogue == GemmEpilogue::kSiluMul ? c.n / 2 : c.n; }

GemmArgs make_args(const Case& c, const Operands& o, const Buffer& out) {
  GemmArgs a;
  a.x = o.x.as<void>();
  a.x_stride = c.k;
  a.weight = o.weight.as<void>();
  a.type = c.type;
  a.scales = c.scales;
  a.promote = c.promote;
  a.epilogue = c.epilogue;
  if (c.scales != GemmScales::kNone) {
    a.x_scale = o.x_scale.as<float>();
    a.w_scale = o.w_scale.as<float>();
  }
  a.bias = c.bias ? o.bias.as<float>() : nullptr;
  a.residual = c.residual ? o.residual.as<float>() : nullptr;
  a.residual_stride = columns_of(c);
  a.out = out.as<void>();
  a.out_stride = columns_of(c);
  a.out_f32 = c.out_f32;
  a.m = c.m;
  a.n = c.n;
  a.k = c.k;
  a.splits = c.splits;
  if (c.splits > 1) a.split_sums = o.split_sums.as<float>();
  return a;
}

__device__ double operand(const void* data, GemmType type, int64_t at) {
  if (type == GemmType::kInt8) return static_cast<const int8_t*>(data)[at];
  return type == GemmType::kBF16
             ? static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]))
             : static_cast<double>(float(static_cast<const __nv_fp8_e4m3*>(data)[at]));
}

// answers[i] = the value and magnitudes[i] the sum of absolute terms of output outputs[i] = row *
// columns + column. One warp an output.
__global__ void reference_kernel(GemmArgs a, const int32_t* outputs, int count, int columns,
                                 double* answers, double* magnitudes) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (index >= count) return;
  const int row = outputs[index] / columns;
  const int column = outputs[index] % columns;
  const int boxes = (a.k + 127) / 128;
  const auto linear = [&](int j, double& magnitude) {
    double sum = 0;
    magnitude = 0;
    for (int64_t i = lane; i < a.k; i += 32) {
      double term = operand(a.x, a.type, row * a.x_stride + i) *
                    operand(a.weight, a.type, static_cast<int64_t>(j) * a.k + i);
      if (a.scales == GemmScales::kBlocks) {
        term *= static_cast<double>(a.x_scale[static_cast<int64_t>(row) * boxes + i / 128]) *
                a.w_scale[static_cast<int64_t>(j / 128) * boxes + i / 128];
      }
      sum += term;
      magnitude += fabs(term);
    }
    for (int step = 16; step > 0; step /= 2) {
      sum += __shfl_xor_sync(~0u, sum, step);
      magnitude += __shfl_xor_sync(~0u, magnitude, step);
    }
    if (a.scales == GemmScales::kRows) {
      sum *= static_cast<double>(a.x_scale[row]) * a.w_scale[j];
      magnitude *= static_cast<double>(a.x_scale[row]) * a.w_scale[j];
    }
    if (a.bias != nullptr) sum += a.bias[j];
    return sum;
  };
  double magnitude;
  double value = linear(column, magnitude);
  if (a.epilogue == GemmEpilogue::kSiluMul) {
    double up_magnitude;
    const double up = linear(column + a.n / 2, up_magnitude);
    const double silu = value / (1 + exp(-value));
    magnitude = 1.1 * magnitude * fabs(up) + fabs(silu) * up_magnitude + fabs(silu * up) * 16;
    value = silu * up;
  }
  if (a.residual != nullptr) value += a.residual[row * a.residual_stride + column];
  if (lane == 0) {
    answers[index] = value;
    magnitudes[index] = magnitude;
  }
}

float output_at(const std::vector<uint8_t>& bytes, size_t at, bool is_f32) {
  uint32_t bits = 0;
  if (is_f32) {
    std::memcpy(&bits, bytes.data() + 4 * at, 4);
  } else {
    uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * at, 2);
    bits = static_cast<uint32_t>(half) << 16;
  }
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Of the sum of absolute terms: FP32 sums keep 2^-24 a step; the matrix unit's sums of E4M3
// products 14 bits, truncated, over up to k / 32 steps, or over 4 where they are promoted.
double relative_bound(const Case& c) {
  if (c.type == GemmType::kBF16) return std::ldexp(1.0, -18);
  if (c.type == GemmType::kInt8) return std::ldexp(1.0, -22);
  const bool promoted = c.promote || c.scales == GemmScales::kBlocks;
  return std::ldexp(promoted ? 1.0 : 4.0, -11);
}

// Runs the case and compares up to `samples` outputs; the output is poisoned before.
void check_case(Report& report, const Case& c, uint64_t seed, int samples) {
  const Operands operands = make_operands(c, seed);
  const int columns = columns_of(c);
  const size_t total = static_cast<size_t>(c.m) * static_cast<size_t>(columns);
  const size_t bytes = total * (c.out_f32 ? 4 : 2);
  Buffer out(bytes + 1024);
  require(cudaMemset(out.as<void>(), 0xff, out.bytes()), "poison");
  GemmArgs a = make_args(c, operands, out);
  const std::string what = describe(c);
  if (c.in_place) {
    require(cudaMemcpy(out.as<void>(), a.residual, bytes, cudaMemcpyDeviceToDevice), "residual");
    a.residual = out.as<float>();
  }
  require(kernels::cuda::launch_gemm(a, nullptr), what.c_str());
  a.residual = c.residual ? operands.residual.as<float>() : nullptr;
  require(cudaDeviceSynchronize(), what.c_str());
  const std::vector<uint8_t> got = download<uint8_t>(out, out.bytes());

  std::vector<int32_t> outputs;
  uint32_t state = static_cast<uint32_t>(seed) + 1;
  const size_t count = std::min(total, static_cast<size_t>(samples));
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const bool is_edge = i % 4 == 0;
    const size_t at = count == total ? i
                      : is_edge      ? total - 1 - (state >> 8) % std::min<size_t>(total, 4096)
                                     : (static_cast<size_t>(state) << 8 ^ state >> 8) % total;
    outputs.push_back(static_cast<int32_t>(at));
  }
  const Buffer picked = upload(outputs);
  Buffer answers(count * 8);
  Buffer magnitudes(count * 8);
  reference_kernel<<<static_cast<unsigned>((count + 7) / 8), 256>>>(
      a, picked.as<int32_t>(), static_cast<int>(count), columns, answers.as<double>(),
      magnitudes.as<double>());
  require(cudaGetLastError(), "reference");
  require(cudaDeviceSynchronize(), "reference");
  const std::vector<double> expected = download<double>(answers, count);
  const std::vector<double> magnitude = download<double>(magnitudes, count);
  double worst = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = output_at(got, static_cast<size_t>(outputs[i]), c.out_f32);
    const double allowed = magnitude[i] * relative_bound(c) +
                           std::fabs(expected[i]) * std::ldexp(1.0, c.out_f32 ? -20 : -8) + 1e-30;
    const double error = std::fabs(value - expected[i]) / allowed;
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  check(report, worst <= 1, what + ": error " + std::to_string(worst) + " of the bound");
  const bool kept = std::all_of(got.begin() + static_cast<std::ptrdiff_t>(bytes), got.end(),
                                [](uint8_t b) { return b == 0xff; });
  check(report, kept, what + ": wrote past its output");
}

// A row's bits are the same whatever m, and so whatever the tile's shape.
void check_invariance(Report& report, Case c) {
  c.m = 700;
  const Operands operands = make_operands(c, 5);
  const size_t row = static_cast<size_t>(columns_of(c)) * 4;
  Buffer out(row * 700);
  Buffer one(row * 700);
  GemmArgs a = make_args(c, operands, out);
  require(kernels::cuda::launch_gemm(a, nullptr), "gemm");
  const std::vector<uint8_t> all = download<uint8_t>(out, row * 700);
  for (const int m : {1, 64, 100, 129, 300}) {
    a.m = m;
    a.out = one.as<void>();
    require(cudaMemset(one.as<void>(), 0xff, one.bytes()), "poison");
    require(kernels::cuda::launch_gemm(a, nullptr), "gemm");
    const std::vector<uint8_t> some = download<uint8_t>(one, row * static_cast<size_t>(m));
    check(report, std::equal(some.begin(), some.end(), all.begin()),
          describe(c) + ": bits differ at m " + std::to_string(m));
  }
}

// Of blocks that share K.
void check_splits(Report& report, bool quick) {
  struct Shape {
    int m;
    int n;
    int k;
  };
  constexpr Shape kShapes[] = {{1, 8, 512},     {127, 256, 528},  {129, 264, 640},
                               {255, 776, 656}, {257, 512, 1024}, {300, 1048, 1168}};
  for (const int splits : {2, 3, 4}) {
    for (const Shape& s : kShapes) {
      Case c = {GemmType::kFp8, s.m, s.n, s.k, GemmScales::kRows};
      c.splits = splits;
      check_case(report, c, 11, 1 << 20);
      c.residual = c.in_place = true;
      check_case(report, c, 12, 1 << 20);
      c.residual = c.in_place = c.out_f32 = false;
      check_case(report, c, 13, 1 << 20);
    }
    if (quick) continue;
    Case c = {GemmType::kFp8, 700, 1024, 1024, GemmScales::kRows};
    c.splits = splits;
    check_invariance(report, c);
    for (const int k : {4096, 14336}) {
      c.m = 200;
      c.n = 4096;
      c.k = k;
      c.residual = c.in_place = true;
      check_case(report, c, 14, 4096);
    }
  }
}

}  // namespace

void check_gemm(Report& report, bool quick) {
  check_splits(report, quick);
  struct Kind {
    GemmType type;
    GemmScales scales;
    bool promote;
  };
  const Kind kinds[] = {{GemmType::kBF16, GemmScales::kNone, false},
                        {GemmType::kFp8, GemmScales::kRows, false},
                        {GemmType::kFp8, GemmScales::kRows, true},
                        {GemmType::kFp8, GemmScales::kBlocks, true},
                        {GemmType::kInt8, GemmScales::kRows, false}};
  struct Shape {
    int m;
    int n;
    int k;
  };
  const Shape ragged[] = {{1, 8, 16},      {64, 128, 64},   {127, 256, 400}, {129, 264, 384},
                          {255, 776, 640}, {257, 512, 128}, {300, 1048, 528}};
  const Shape whole[] = {{1, 256, 128}, {129, 768, 256}, {300, 512, 1280}, {64, 2560, 384}};
  for (const Kind& kind : kinds) {
    const bool blocks = kind.scales == GemmScales::kBlocks;
    for (const Shape& s : blocks ? std::vector<Shape>(std::begin(whole), std::end(whole))
                                 : std::vector<Shape>(std::begin(ragged), std::end(ragged))) {
      Case c = {kind.type, s.m, s.n, s.k, kind.scales, kind.promote};
      check_case(report, c, 1, 1 << 20);
      c.residual = c.in_place = true;
      check_case(report, c, 7, 1 << 20);
      c.residual = c.in_place = c.out_f32 = false;
      check_case(report, c, 8, 1 << 20);
      c.bias = true;
      c.residual = true;
      check_case(report, c, 2, 1 << 20);
      c.out_f32 = true;
      check_case(report, c, 3, 1 << 20);
      if (s.n % 16 != 0) continue;
      c.epilogue = GemmEpilogue::kSiluMul;
      c.residual = false;
      check_case(report, c, 4, 1 << 20);
      c.out_f32 = false;
      c.bias = false;
      check_case(report, c, 5, 1 << 20);
    }
    if (quick) continue;
    check_invariance(report, {kind.type, 700, 1024, 1024, kind.scales, kind.promote});
    constexpr int kProducts[][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
    for (const auto& product : kProducts) {
      for (const int m : {64, 200, 2048}) {
        Case c = {kind.type, m, product[0], product[1], kind.scales, kind.promote};
        c.out_f32 = product[0] == 4096;
        c.residual = c.in_place = c.out_f32;
        if (product[0] == 28672) c.epilogue = GemmEpilogue::kSiluMul;
        check_case(report, c, 6, 4096);
      }
    }
  }
}

}  // namespace pelton::bench_cuda
