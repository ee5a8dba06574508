// quantize_rows against its definition, and its time: a row is read once and half of it written.
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/matmul/quantize_rows.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::QuantizeRowsArgs;
using kernels::cuda::RowCodes;

float from_bf16(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

float from_e4m3(uint8_t code) {
  __nv_fp8_e4m3 value;
  value.__x = code;
  return static_cast<float>(value);
}

// Half a step of E4M3 at this magnitude of code.
double half_step(double magnitude) {
  return std::ldexp(1.0, std::max(std::ilogb(std::max(magnitude, 1e-30)), -6) - 4);
}

void check_case(Report& report, RowCodes kind, int rows, int columns, int stride) {
  const bool is_fp8 = kind == RowCodes::kFp8;
  const std::string what = std::string("quantize_rows ") + (is_fp8 ? "fp8 " : "int8 ") +
                           std::to_string(rows) + "x" + std::to_string(columns);
  Buffer x(static_cast<size_t>(rows) * static_cast<size_t>(stride) * 2);
  fill(x, Fill::kNormalBF16, 3.0f, static_cast<uint64_t>(columns));
  std::vector<uint16_t> bits = download<uint16_t>(x, x.bytes() / 2);
  std::fill_n(bits.begin(), columns, static_cast<uint16_t>(0));  // a row of zeros
  // The last row is not finite.
  bits[static_cast<size_t>(rows - 1) * static_cast<size_t>(stride) + 5] =
      columns % 32 == 0 ? 0xff80 : 0x7fc0;
  x = upload(bits);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  Buffer codes(count + 256);
  Buffer scale(static_cast<size_t>(rows) * 4);
  require(cudaMemset(codes.as<void>(), 0xaa, codes.bytes()), "poison");
  QuantizeRowsArgs a;
  a.x = x.as<void>();
  a.x_stride = stride;
  a.codes = codes.as<void>();
  a.scale = scale.as<float>();
  a.rows = rows;
  a.columns = columns;
  a.kind = kind;
  require(kernels::cuda::launch_quantize_rows(a, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  const std::vector<uint8_t> got = download<uint8_t>(codes, codes.bytes());
  const std::vector<float> scales = download<float>(scale, static_cast<size_t>(rows));
  bool good = true;
  good = good && std::isnan(scales.back());
  for (int row = 0; row < rows - 1; ++row) {
    const uint16_t* from = bits.data() + static_cast<size_t>(row) * static_cast<size_t>(stride);
    float largest = 0.0f;
    for (int i = 0; i < columns; ++i) largest = std::max(largest, std::fabs(from_bf16(from[i])));
    const float step = scales[static_cast<size_t>(row)];
    good = good && step == largest / (is_fp8 ? 448.0f : 127.0f);
    for (int i = 0; i < columns; ++i) {
      const double value = from_bf16(from[i]);
      const uint8_t stored =
          got[static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(i)];
      const double code = is_fp8 ? from_e4m3(stored) : static_cast<int8_t>(stored);
      const double wanted = step > 0.0f ? value / step : 0.0;
      good = good &&
             std::fabs(code - wanted) <= (is_fp8 ? half_step(std::fabs(wanted)) : 0.5) * 1.0001;
    }
  }
  check(report, good, what);
  check(report,
        std::all_of(got.begin() + static_cast<std::ptrdiff_t>(count), got.end(),
                    [](uint8_t b) { return b == 0xaa; }),
        what + ": wrote past its output");
}

// The same of RMS norms of f32 rows.
void check_norm(Report& report, RowCodes kind, int rows, int columns) {
  constexpr float kEps = 1e-5f;
  const bool is_fp8 = kind == RowCodes::kFp8;
  const std::string what = std::string("quantize_rows of norms ") + (is_fp8 ? "fp8 " : "int8 ") +
                           std::to_string(rows) + "x" + std::to_string(columns);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  std::vector<float> x(count);
  std::vector<float> weight(static_cast<size_t>(columns));
  uint32_t state = 7;
  const auto next = [&state] {
    return static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) *
           0x1p-31f;
  };
  for (float& v : x) v = 3.0f * next();
  for (float& v : weight) v = 1.0f + 0.5f * next();
  std::fill_n(x.begin(), columns, 0.0f);
  x[count - 3] = NAN;
  const Buffer rows_on_device = upload(x);
  const Buffer weight_on_device = upload(weight);
  Buffer codes(count);
  Buffer scale(static_cast<size_t>(rows) * 4);
  QuantizeRowsArgs a;
  a.x = rows_on_device.as<void>();
  a.x_stride = columns;
  a.norm_weight = weight_on_device.as<float>();
  a.norm_eps = kEps;
  a.codes = codes.as<void>();
  a.scale = scale.as<float>();
  a.rows = rows;
  a.columns = columns;
  a.kind = kind;
  require(kernels::cuda::launch_quantize_rows(a, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  const std::vector<uint8_t> got = download<uint8_t>(codes, count);
  const std::vector<float> scales = download<float>(scale, static_cast<size_t>(rows));
  bool good = std::isnan(scales.back()) && scales.front() == 0.0f;
  for (int row = 1; row < rows - 1; ++row) {
    const float* from = x.data() + static_cast<size_t>(row) * static_cast<size_t>(columns);
    double squares = 0;
    double largest = 0;
    for (int i = 0; i < columns; ++i) {
      squares += static_cast<double>(from[i]) * from[i];
      largest = std::max(largest,
                         std::fabs(static_cast<double>(from[i]) * weight[static_cast<size_t>(i)]));
    }
    const double norm = 1 / std::sqrt(squares / columns + static_cast<double>(kEps));
    const double step = largest * norm / (is_fp8 ? 448 : 127);
    good = good && std::fabs(scales[static_cast<size_t>(row)] - step) <= 1e-5 * step;
    for (int i = 0; i < columns; ++i) {
      const double wanted = from[i] * norm * weight[static_cast<size_t>(i)] / step;
      const uint8_t stored =
          got[static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(i)];
      const double code = is_fp8 ? from_e4m3(stored) : static_cast<int8_t>(stored);
      good =
          good && std::fabs(code - wanted) <= (is_fp8 ? half_step(std::fabs(wanted)) : 0.5) * 1.001;
    }
  }
  check(report, good, what);
}

}  // namespace

void check_quantize_rows(Report& report, bool quick) {
  for (const RowCodes kind : {RowCodes::kFp8, RowCodes::kInt8}) {
    for (const int columns : {16, 4096, 4112, 8192}) check_norm(report, kind, 5, columns);
    check_case(report, kind, 3, 16, 16);
    check_case(report, kind, 5, 4096, 4104);
    check_case(report, kind, 3, 16400, 16400);
    check_case(report, kind, 3, 33024, 33024);
    if (!quick) check_case(report, kind, 200, 14336, 14336);
  }
}

void bench_quantize_rows(Report& report) {
  for (const int columns : {4096, 14336}) {
    for (const int rows : {64, 256, 8192}) {
      const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
      const int copies = static_cast<int>(std::max<size_t>(1, (size_t{128} << 20) / count));
      Buffer x(count * 2 * static_cast<size_t>(copies));
      fill(x, Fill::kNormalBF16, 1.0f, 1);
      Buffer codes(count);
      Buffer scale(static_cast<size_t>(rows) * 4);
      Timed t;
      t.row = {"quantize", std::to_string(rows) + "x" + std::to_string(columns),
               "pelton",   0,
               0,          3.0 * static_cast<double>(count),
               0};
      t.launches = std::clamp(copies, 4, 16);
      t.record = [&, launches = t.launches](cudaStream_t stream) {
        for (int i = 0; i < launches; ++i) {
          QuantizeRowsArgs a;
          a.x = x.as<void>(static_cast<size_t>(i % copies) * count * 2);
          a.x_stride = columns;
          a.codes = codes.as<void>();
          a.scale = scale.as<float>();
          a.rows = rows;
          a.columns = columns;
          require(kernels::cuda::launch_quantize_rows(a, stream), "launch");
        }
      };
      std::vector<Timed> cases = {t};
      time_interleaved(cases, 7, report);
    }
  }
}

}  // namespace pelton::bench_cuda
