// Every op's case table with bf16 activations on a device, as it runs by default. Inputs are bf16
// numbers, so the reference sees what the kernel sees; a result then differs by the f32 sums' error
// and by kHalf of itself for its one rounding (docs/kernels.md, "Tolerances").
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/ref/attention.h"
#include "kernels/ref/matmul.h"
#include "kernels/ref/rows.h"
#include "ops/attention.h"
#include "ops/attention_cases.h"
#include "ops/device_weights.h"
#include "ops/elementwise.h"
#include "ops/elementwise_cases.h"
#include "ops/matmul.h"
#include "ops/matmul_cases.h"
#include "ops/testing/attention_run.h"
#include "ops/testing/device_harness.h"

namespace pelton::ops {
namespace {

using kernels::KvFormat;
using kernels::WeightMatrix;

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr double kHalf = 0x1.01p-8;  // half a unit in the last place of bf16, with f32's share

Matrix random_bf16(int64_t rows, int64_t columns, uint64_t seed, float scale = 1.0f) {
  Matrix m = Matrix::normal(rows, columns, seed, scale);
  m.round_to(DType::kBF16);
  return m;
}

class DeviceBf16Test : public testing::TestWithParam<TestDevice> {
 protected:
  DeviceBf16Test() : harness_(GetParam()) {}
  void SetUp() override {
    if (!harness_.absent().empty()) GTEST_SKIP() << harness_.absent();
  }
  bool is_fake() const { return GetParam() == TestDevice::kFake; }
  static Matrix random(int64_t rows, int64_t columns, uint64_t seed, float scale = 1.0f) {
    return random_bf16(rows, columns, seed, scale);
  }

  DeviceHarness harness_;
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceBf16Test, testing::ValuesIn(kTestDevices),
                         [](const auto& info) { return test_device_name(info.param); });

void expect_same_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " element " << i;
  }
}

void expect_rounded(std::span<const float> got, std::span<const float> want, double f32_error) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = want[i];
    ASSERT_NEAR(got[i], w, (f32_error + kHalf) * std::fabs(w) + f32_error) << "element " << i;
  }
}

TEST_P(DeviceBf16Test, ActivationsAreBf16UnlessF32IsAskedFor) {
  EXPECT_EQ(harness_.context().activation_type(), DType::kBF16);
  harness_.context().activations = kernels::ActivationPrecision::kF32;
  EXPECT_EQ(harness_.context().activation_type(), DType::kF32);
  harness_.context().activations = kernels::ActivationPrecision::kInt8;
}

TEST_P(DeviceBf16Test, NormsBetweenTheResidualStreamAndActivations) {
  for (const RowCase& c : kRowCases) {
    harness_.reset();
    Matrix stream = Matrix::normal(c.rows, c.columns, 1, 3.0f);
    Matrix x = random(c.rows, c.columns, 5, 2.0f);
    Matrix weight = Matrix::normal(1, c.columns, 2);
    Matrix bias = Matrix::normal(1, c.columns, 3);
    const float* w = harness_.put(weight.values);
    const Tensor residual = harness_.put(stream);
    const Tensor out = harness_.blank(c.rows, c.columns, DType::kBF16);
    const Tensor layer = harness_.blank(c.rows, c.columns, DType::kBF16);
    StepContext& context = harness_.context();
    ASSERT_TRUE(rms_norm(context, {.x = residual, .weight = w, .eps = 1e-5f, .out = out}).ok());
    ASSERT_TRUE(layer_norm(context, {.x = residual,
                                     .weight = w,
                                     .bias = harness_.put(bias.values),
                                     .eps = 1e-5f,
                                     .out = layer})
                    .ok());
    Matrix normed = harness_.get(out);
    Matrix layered = harness_.get(layer);
    ASSERT_TRUE(
        rms_norm(
            context,
            {.x = harness_.put(x, DType::kBF16), .weight = w, .eps = 1e-5f, .residual = &residual})
            .ok());
    Matrix added = harness_.get(residual);
    std::vector<float> want(static_cast<size_t>(c.columns));
    for (int64_t t = 0; t < c.rows; ++t) {
      kernels::ref::rms_norm(stream.row(t), weight.row(0), 1e-5, want);
      expect_rounded(normed.row(t), want, 8 * kEps);
      kernels::ref::rms_norm(x.row(t), weight.row(0), 1e-5, want);
      for (size_t i = 0; i < want.size(); ++i) {
        const double sum = static_cast<double>(stream.row(t)[i]) + static_cast<double>(want[i]);
        ASSERT_NEAR(added.row(t)[i], sum, 16 * kEps * (1 + std::fabs(want[i]) + std::fabs(sum)));
      }
      if (c.columns == 1) continue;
      kernels::ref::layer_norm(stream.row(t), weight.row(0), bias.row(0), 1e-5, want);
      expect_rounded(layered.row(t), want, 64 * kEps);
    }
  }
}

TEST_P(DeviceBf16Test, ActivationFunctionsRoundOnce) {
  const Matrix gate = random(5, 2003, 11, 4.0f);
  const Matrix up = random(5, 2003, 12);
  const Tensor out = harness_.blank(5, 2003, DType::kBF16);
  ASSERT_TRUE(gated_activation(harness_.context(), Activation::kSilu,
                               harness_.put(gate, DType::kBF16), harness_.put(up, DType::kBF16),
                               out)
                  .ok());
  const Matrix got = harness_.get(out);
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double want = kernels::ref::silu(gate.values[i]) * static_cast<double>(up.values[i]);
    ASSERT_NEAR(got.values[i], want, (kHalf + 16 * kEps) * std::fabs(want) + 1e-30);
  }
}

struct Sums {
  std::vector<double> value;
  std::vector<double> magnitude;
};

// The products of one row with all weights and the bias.
Sums reference_row(std::span<const WeightMatrix> weights, const std::vector<float>& bias,
                   std::span<const float> x) {
  Sums sums;
  for (const WeightMatrix& w : weights) {
    std::vector<double> value(static_cast<size_t>(w.rows)), magnitude(value.size());
    kernels::ref::product_row(w, x, value.data(), magnitude.data());
    sums.value.insert(sums.value.end(), value.begin(), value.end());
    sums.magnitude.insert(sums.magnitude.end(), magnitude.begin(), magnitude.end());
  }
  for (size_t i = 0; i < bias.size(); ++i) {
    sums.value[i] += static_cast<double>(bias[i]);
    sums.magnitude[i] += std::fabs(static_cast<double>(bias[i]));
  }
  return sums;
}

// Weights of a case, on the host and end to end on the device.
struct DeviceWeights {
  DeviceWeights(DeviceHarness& harness, const std::vector<int64_t>& rows, int64_t columns,
                WeightFormat format, Random& rng) {
    for (const int64_t r : rows) {
      sources.push_back(random_weight(format, r, columns, 0.05f, rng));
      host.push_back(in_place(format, r, columns, sources.back()));
      there.push_back(host.back());
      there.back().data = harness.put(std::span<const std::byte>(sources.back()));
      n += r;
    }
  }
  std::vector<std::vector<std::byte>> sources;
  std::vector<WeightMatrix> host;
  std::vector<WeightMatrix> there;
  int64_t n = 0;
};

double f32_error(double magnitude, int64_t columns) {
  return magnitude * 0x1.0p-24 * (8 + std::sqrt(static_cast<double>(columns)));
}

// The case table with these numbers of rows; negative ones need not keep a row's bits.
void check_products(DeviceHarness& harness, const std::vector<int64_t>& rows) {
  Random rng(31);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF32, WeightFormat::kF16}) {
    std::vector<MatmulCase> cases = matmul_cases(32);
    cases.push_back({"odd_columns", {19, 3}, 77, true, false});
    cases.push_back({"split", {576}, 1536, false, true});
    for (const MatmulCase& c : cases) {
      harness.reset();
      const DeviceWeights w(harness, c.segment_rows, c.columns, format, rng);
      std::vector<float> bias;
      if (c.bias) bias = Matrix::normal(1, w.n, 21).values;
      const float* bias_there = c.bias ? harness.put(bias) : nullptr;
      const DType type = c.accumulate ? DType::kF32 : DType::kBF16;
      std::optional<Matrix> one;
      for (const int64_t asked : rows) {
        const int64_t m = std::abs(asked);
        harness.set_invariant(asked > 0);
        Matrix x = random_bf16(m, c.columns, 22);
        Matrix before = Matrix::normal(m, w.n, 23);
        const Tensor out = c.accumulate ? harness.put(before) : harness.blank(m, w.n, type);
        ASSERT_TRUE(matmul(harness.context(), {.x = harness.put(x, DType::kBF16),
                                               .weights = w.there,
                                               .bias = bias_there,
                                               .out = out,
                                               .accumulate = c.accumulate})
                        .ok());
        Matrix got = harness.get(out);
        for (int64_t t = 0; t < m; t += 5) {
          const Sums want = reference_row(w.host, bias, x.row(t));
          for (size_t i = 0; i < want.value.size(); ++i) {
            double value = want.value[i];
            if (c.accumulate) value += static_cast<double>(before.row(t)[i]);
            const double rounding = c.accumulate ? 0.0 : kHalf * std::fabs(value);
            ASSERT_NEAR(got.row(t)[i], value,
                        f32_error(want.magnitude[i] + std::fabs(value), c.columns) + rounding)
                << c.name << " " << weight_format_name(format) << " rows " << m << " row " << t
                << " column " << i;
          }
        }
        if (!one) one = got;
        if (asked > 0) expect_same_bits(got.row(0), one->row(0), c.name);
      }
      harness.set_invariant(false);
    }
  }
}

TEST_P(DeviceBf16Test, ProductsMatchTheReferenceAndRowsDoNotDependOnTheirCompany) {
  std::vector<int64_t> rows(kMatmulRows.begin(), kMatmulRows.end());
  for (const int64_t m : {33, 130}) rows.push_back(-m);  // not invariant
  check_products(harness_, rows);
}

TEST_P(DeviceBf16Test, ProductsOfTheLibraryMatchTheReference) {
  if (!harness_.prefer("cublaslt")) GTEST_SKIP() << "no cuBLASLt here";
  check_products(harness_, {-33, -64, -130});
}

TEST_P(DeviceBf16Test, GatedProductsMatchTheReference) {
  Random rng(32);
  struct Case {
    int64_t inner;
    int64_t columns;
    bool bias;
    Activation activation;
  };
  for (const Case& c :
       {Case{1536, 576, false, Activation::kSilu}, Case{48, 96, true, Activation::kSilu},
        Case{40, 96, false, Activation::kSilu}, Case{64, 640, false, Activation::kGeluTanh}}) {
    harness_.reset();
    const DeviceWeights w(harness_, {c.inner, c.inner}, c.columns, WeightFormat::kBF16, rng);
    std::vector<float> bias;
    if (c.bias) bias = Matrix::normal(1, w.n, 21).values;
    const float* bias_there = c.bias ? harness_.put(bias) : nullptr;
    for (const int64_t m : {1, 3, 17, 40}) {
      Matrix x = random(m, c.columns, 24);
      const Tensor out = harness_.blank(m, c.inner, DType::kBF16);
      ASSERT_TRUE(gated_matmul(harness_.context(), {.product = {.x = harness_.put(x, DType::kBF16),
                                                                .weights = w.there,
                                                                .bias = bias_there,
                                                                .out = out},
                                                    .activation = c.activation})
                      .ok());
      Matrix got = harness_.get(out);
      const auto function =
          c.activation == Activation::kSilu ? kernels::ref::silu : kernels::ref::gelu_tanh;
      for (int64_t t = 0; t < m; ++t) {
        const Sums sums = reference_row(w.host, bias, x.row(t));
        for (int64_t i = 0; i < c.inner; ++i) {
          const auto g = static_cast<size_t>(i);
          const auto u = static_cast<size_t>(c.inner + i);
          const double gate = sums.value[g];
          const double up = sums.value[u];
          const double want = function(gate) * up;
          // Two roundings of gate and up where they are apart; neither function is steeper than
          // 1.13.
          const double gate_error =
              f32_error(sums.magnitude[g], c.columns) + kHalf * std::fabs(gate);
          const double up_error = f32_error(sums.magnitude[u], c.columns) + kHalf * std::fabs(up);
          const double tolerance = 1.13 * gate_error * std::fabs(up) +
                                   std::fabs(function(gate)) * up_error +
                                   1.13 * gate_error * up_error + kHalf * std::fabs(want) * 1.1;
          ASSERT_NEAR(got.row(t)[i], want, tolerance + 1e-6)
              << "rows " << m << " row " << t << " column " << i;
        }
      }
    }
  }
}

// Weights quantized at load: what the kernels multiply is what the host reads back, and that is
// near what was quantized.
TEST_P(DeviceBf16Test, QuantizedWeightsAreMultipliedAsTheyReadBack) {
  using kernels::WeightLayout;
  struct Case {
    WeightLayout layout;
    int64_t rows;
    int64_t columns;
    double error;  // of a value, in its row's or group's largest
  };
  for (const Case& c : {Case{WeightLayout::kFp8Channels, 48, 576, 0x1p-4},
                        Case{WeightLayout::kInt8Channels, 37, 576, 0.5 / 127},
                        Case{WeightLayout::kInt4Groups, 64, 1536, 1.0 / 7}}) {
    harness_.reset();
    const Matrix values = Matrix::normal(c.rows, c.columns, 61, 0.05f);
    const int64_t tile_rows = kernels::device_tile_rows(c.layout);
    const size_t tile_bytes = kernels::device_tile_bytes(c.layout, c.columns);
    std::vector<std::byte> bytes(kernels::device_weight_bytes(c.layout, c.rows, c.columns));
    std::vector<float> scales(static_cast<size_t>(c.rows));
    for (int64_t row = 0; row < c.rows; row += tile_rows) {
      const auto at = static_cast<size_t>(row / tile_rows) * tile_bytes;
      kernels::quantize_tile(
          c.layout, c.columns,
          {values.values.data() + row * c.columns, static_cast<size_t>(tile_rows * c.columns)},
          std::span(bytes).subspan(at, tile_bytes), &scales[static_cast<size_t>(row)]);
    }
    if (c.layout != WeightLayout::kInt4Groups) {
      std::memcpy(bytes.data() + kernels::channel_scales_offset(c.rows, c.columns), scales.data(),
                  scales.size() * sizeof(float));
    }
    WeightMatrix weight{bytes.data(), bytes.size(),        c.rows,
                        c.columns,    WeightFormat::kBF16, c.layout};
    Matrix back(c.rows, c.columns);
    for (int64_t r = 0; r < c.rows; ++r) {
      kernels::dequantize_device_row(weight, r, back.row(r).data());
      float largest = 0;
      for (int64_t i = 0; i < c.columns; ++i)
        largest =
            std::max(largest, std::fabs(values.values[static_cast<size_t>(r * c.columns + i)]));
      for (int64_t i = 0; i < c.columns; ++i) {
        const double value = values.values[static_cast<size_t>(r * c.columns + i)];
        const double size = c.layout == WeightLayout::kFp8Channels
                                ? std::fabs(value) + static_cast<double>(largest) * 0x1p-9
                                : static_cast<double>(largest);
        ASSERT_NEAR(back.row(r)[i], value, c.error * size * 1.01)
            << kernels::weight_layout_name(c.layout) << " row " << r << " column " << i;
      }
    }
    weight.data = harness_.put(std::span<const std::byte>(bytes));
    const WeightMatrix exact = in_place(WeightFormat::kF32, c.rows, c.columns,
                                        std::as_bytes(std::span<const float>(back.values)));
    for (const int64_t m : {1, 9, 33}) {
      // Elsewhere more rows than eight meet FP8 weights as codes (the next test).
      const bool is_code = m > 8 && c.layout == WeightLayout::kFp8Channels;
      harness_.prefer(is_code && !is_fake() ? "small_m" : "");
      Matrix x = random(m, c.columns, 62);
      const Tensor out = harness_.blank(m, c.rows);
      ASSERT_TRUE(matmul(harness_.context(),
                         {.x = harness_.put(x, DType::kBF16), .weights = {&weight, 1}, .out = out})
                      .ok());
      Matrix got = harness_.get(out);
      for (int64_t t = 0; t < m; t += 4) {
        const Sums want = reference_row({&exact, 1}, {}, x.row(t));
        for (size_t i = 0; i < want.value.size(); ++i) {
          // Int4 sums codes of 0 to 15 and takes eight times the sum of x off; of more than 8 rows,
          // its weights are rounded to bf16.
          const bool is_rounded = m > 8 && c.layout == WeightLayout::kInt4Groups;
          ASSERT_NEAR(got.row(t)[i], want.value[i],
                      16 * f32_error(want.magnitude[i], c.columns) +
                          (is_rounded ? 0x1p-8 * want.magnitude[i] : 0.0))
              << kernels::weight_layout_name(c.layout) << " rows " << m << " row " << t
              << " column " << i;
        }
      }
    }
  }
}

// Rows of x as codes of such weights with a scale each, as floats.
Matrix code_rows(Matrix x, kernels::WeightLayout layout) {
  const bool is_fp8 = layout == kernels::WeightLayout::kFp8Channels;
  const float most = is_fp8 ? 448.0f : 127.0f;
  for (int64_t t = 0; t < x.rows; ++t) {
    float largest = 0;
    for (const float v : x.row(t)) largest = std::max(largest, std::fabs(v));
    const float inverse = largest > 0 ? most / largest : 0.0f;
    for (float& v : x.row(t)) {
      const float code = v * inverse;
      v = (is_fp8 ? fp8_to_f32(f32_to_fp8(code)) : std::nearbyint(code)) * (largest / most);
    }
  }
  return x;
}

TEST_P(DeviceBf16Test, ManyRowsMeetWeightsOfEightBitsAsCodes) {
  using kernels::WeightLayout;
  constexpr int64_t kRows = 96;
  constexpr int64_t kFewColumns = 608;
  constexpr int64_t kShared = 8192;  // by two blocks
  if (is_fake()) GTEST_SKIP() << "the references take rows as they are";
  struct Case {
    WeightLayout layout;
    const char* entry;
    int64_t fewest;  // rows
    int64_t columns = kFewColumns;
  };
  for (const Case& c : {Case{WeightLayout::kFp8Channels, "wide_m_fp8", 9},
                        Case{WeightLayout::kFp8Channels, "gemm_fp8", 33},
                        Case{WeightLayout::kFp8Channels, "gemm_fp8", 130, kShared},
                        Case{WeightLayout::kFp8Channels, "cublaslt_fp8", 33},
                        Case{WeightLayout::kInt8Channels, "gemm_int8", 33}}) {
    harness_.reset();
    const int64_t columns = c.columns;
    Matrix values = Matrix::normal(kRows, columns, 71, 0.05f);
    std::vector<std::byte> bytes(kernels::device_weight_bytes(c.layout, kRows, columns));
    std::vector<float> scales(kRows);
    for (int64_t row = 0; row < kRows; ++row) {
      kernels::quantize_tile(c.layout, columns, values.row(row),
                             std::span(bytes).subspan(static_cast<size_t>(row * columns), columns),
                             &scales[static_cast<size_t>(row)]);
    }
    std::memcpy(bytes.data() + kernels::channel_scales_offset(kRows, columns), scales.data(),
                scales.size() * sizeof(float));
    WeightMatrix weight{bytes.data(), bytes.size(), kRows, columns, WeightFormat::kBF16, c.layout};
    Matrix back(kRows, columns);
    for (int64_t r = 0; r < kRows; ++r)
      kernels::dequantize_device_row(weight, r, back.row(r).data());
    weight.data = harness_.put(std::span<const std::byte>(bytes));
    const WeightMatrix exact = in_place(WeightFormat::kF32, kRows, columns,
                                        std::as_bytes(std::span<const float>(back.values)));
    if (!harness_.prefer(c.entry)) continue;
    for (const bool accumulate : {false, true}) {
      for (const int64_t m : {9, 33, 64, 130}) {
        if (m < c.fewest) continue;
        Matrix x = random(m, columns, 72);
        Matrix rounded = code_rows(x, c.layout);
        Matrix before = Matrix::normal(m, kRows, 73);
        const Tensor out =
            accumulate ? harness_.put(before) : harness_.blank(m, kRows, DType::kBF16);
        ASSERT_TRUE(matmul(harness_.context(), {.x = harness_.put(x, DType::kBF16),
                                                .weights = {&weight, 1},
                                                .out = out,
                                                .accumulate = accumulate})
                        .ok());
        Matrix got = harness_.get(out);
        // Of FP8 the matrix unit keeps about 14 bits of a sum, truncated, over up to k / 32 steps.
        const double sums = c.layout == WeightLayout::kFp8Channels ? 0x1p-9 : 0x1p-20;
        for (int64_t t = 0; t < m; t += 3) {
          const Sums want = reference_row({&exact, 1}, {}, rounded.row(t));
          for (size_t i = 0; i < want.value.size(); ++i) {
            const double value =
                want.value[i] + (accumulate ? static_cast<double>(before.row(t)[i]) : 0.0);
            ASSERT_NEAR(got.row(t)[i], value,
                        sums * want.magnitude[i] + kHalf * std::fabs(value) + 1e-6)
                << c.entry << " rows " << m << " row " << t << " column " << i;
          }
        }
      }
    }
  }
  harness_.prefer("");
}

TEST_P(DeviceBf16Test, AProductOfNormsHasTheBitsOfANormAndAProduct) {
  Random rng(33);
  for (const int64_t columns : {96, 576, 2048, 5120}) {
    harness_.reset();
    StepContext& context = harness_.context();
    const DeviceWeights w(harness_, {96, 96}, columns, WeightFormat::kBF16, rng);
    const float* weight = harness_.put(Matrix::normal(1, columns, 2).values);
    for (const int64_t m : {1, 3, 8, 40}) {
      const Tensor x = harness_.put(Matrix::normal(m, columns, 3, 3.0f));
      const Tensor normed = harness_.blank(m, columns, DType::kBF16);
      ASSERT_TRUE(rms_norm(context, {.x = x, .weight = weight, .eps = 1e-5f, .out = normed}).ok());
      const MatmulArgs apart{
          .x = normed, .weights = w.there, .out = harness_.blank(m, w.n, DType::kBF16)};
      MatmulArgs at_once{.x = x,
                         .weights = w.there,
                         .out = harness_.blank(m, w.n, DType::kBF16),
                         .norm = true,
                         .norm_weight = weight,
                         .norm_eps = 1e-5f};
      ASSERT_TRUE(matmul(context, apart).ok());
      ASSERT_TRUE(matmul(context, at_once).ok());
      expect_same_bits(harness_.get(at_once.out).values, harness_.get(apart.out).values,
                       "columns " + std::to_string(columns) + " rows " + std::to_string(m));
      const Tensor gated[] = {harness_.blank(m, w.n / 2, DType::kBF16),
                              harness_.blank(m, w.n / 2, DType::kBF16)};
      MatmulArgs gate_up = apart;
      gate_up.out = gated[0];
      at_once.out = gated[1];
      ASSERT_TRUE(gated_matmul(context, {.product = gate_up}).ok());
      ASSERT_TRUE(gated_matmul(context, {.product = at_once}).ok());
      expect_same_bits(harness_.get(gated[1]).values, harness_.get(gated[0]).values,
                       "gated, columns " + std::to_string(columns) + " rows " + std::to_string(m));
    }
  }
}

void expect_attention_near(const AttentionCase& c, KvFormat format, AttentionRun& run, size_t i) {
  Matrix keys = run.keys[i];
  Matrix values = run.values[i];
  const auto d = static_cast<size_t>(c.head_dim);
  for (int64_t t = 0; t < keys.rows; ++t) {
    for (size_t h = 0; h < static_cast<size_t>(c.kv_heads); ++h) {
      kernels::ref::round_to_page(format, keys.row(t).subspan(h * d, d));
      kernels::ref::round_to_page(format, values.row(t).subspan(h * d, d));
    }
  }
  for (int64_t t = 0; t < keys.rows; t += t < keys.rows - 8 ? 9 : 1) {
    for (int32_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / (c.heads / c.kv_heads) * c.head_dim;
      const auto want = kernels::ref::attention(
          {.query = run.queries[i].row(t).subspan(static_cast<size_t>(h) * d, d),
           .keys = keys.values.data() + kv,
           .values = values.values.data() + kv,
           .stride = keys.columns,
           .position = static_cast<int32_t>(t),
           .head = h},
          run.host_variant);
      // Softmax weights are rounded to bf16 before they meet the values, and the sum is not.
      const double scores =
          kEps * (32 + (2 * std::sqrt(static_cast<double>(d)) + 4) * want.largest_product);
      for (size_t e = 0; e < d; ++e) {
        ASSERT_NEAR(
            run.outputs[i].row(t)[static_cast<size_t>(h) * d + e], want.out[e],
            (scores + 2 * kHalf) * want.magnitude[e] + kHalf * std::fabs(want.out[e]) + 1e-30)
            << c.name << " " << kernels::kv_format_name(format) << " sequence " << i << " row " << t
            << " head " << h << " element " << e;
      }
    }
  }
}

TEST_P(DeviceBf16Test, InvariantAttentionIsTheSameInPromptsAndWhileDecoding) {
  harness_.set_invariant(true);
  for (const AttentionCase& c : kAttentionCases) {
    const int32_t length = is_fake() ? 37 : 300;
    AttentionRun whole(harness_, c, KvFormat::kBF16, {length, 21}, DType::kBF16);
    whole.step({length, 21});
    for (size_t i = 0; i < 2; ++i) expect_attention_near(c, KvFormat::kBF16, whole, i);
    AttentionRun chunks(harness_, c, KvFormat::kBF16, {length, 21}, DType::kBF16);
    chunks.step({17, 0});
    chunks.step({1, 20});
    chunks.step({length - 19, 1});
    chunks.step({1, 0});
    for (size_t i = 0; i < 2; ++i)
      expect_same_bits(chunks.outputs[i].values, whole.outputs[i].values, c.name);
    if (HasFatalFailure()) break;
  }
  harness_.set_invariant(false);
}

TEST_P(DeviceBf16Test, AttentionMatchesTheReferenceAndDecodingRowsDoNotDependOnTheirCompany) {
  for (const AttentionCase& c : kAttentionCases) {
    for (const KvFormat format :
         {KvFormat::kBF16, KvFormat::kF16, KvFormat::kFp8, KvFormat::kInt8}) {
      const int32_t length = is_fake() ? 37 : 700;
      AttentionRun together(harness_, c, format, {length, 21, 6}, DType::kBF16);
      together.step({length - 5, 16, 1});
      for (int i = 0; i < 5; ++i) together.step({1, 1, 1});
      for (size_t i = 0; i < 3; ++i) expect_attention_near(c, format, together, i);
      AttentionRun alone(harness_, c, format, {length, 21, 6}, DType::kBF16);
      alone.step({length - 5, 16, 1});
      for (int i = 0; i < 5; ++i) alone.step({1, 0, 0});
      for (int i = 0; i < 5; ++i) alone.step({0, 1, 0});
      for (int i = 0; i < 5; ++i) alone.step({0, 0, 1});
      for (size_t i = 0; i < 3; ++i)
        expect_same_bits(alone.outputs[i].values, together.outputs[i].values, c.name);
      if (HasFatalFailure()) return;
    }
  }
}

// One op between projection and attention: norms, rotation and storing.
TEST_P(DeviceBf16Test, PreparationNormsRotatesAndStores) {
  constexpr int32_t kBlock = 16;
  constexpr int64_t kRows = 3;
  struct Case {
    int64_t heads;
    int32_t kv_heads;
    int32_t head_dim;
    int64_t rotary_dim;  // 0: nothing rotates
    RopePairing pairing;
    bool norms;
  };
  for (const Case& c : {Case{9, 3, 64, 64, RopePairing::kHalves, false},
                        Case{9, 3, 64, 64, RopePairing::kAdjacent, false},
                        Case{4, 2, 128, 128, RopePairing::kHalves, true},
                        Case{4, 1, 256, 256, RopePairing::kHalves, true},
                        Case{4, 2, 80, 32, RopePairing::kHalves, false},
                        Case{2, 1, 16, 0, RopePairing::kHalves, false},
                        Case{5, 1, 24, 10, RopePairing::kAdjacent, true}}) {
    harness_.reset();
    const int64_t d = c.head_dim;
    const int64_t all = c.heads + 2 * c.kv_heads;
    Matrix qkv = random(kRows, all * d, 41);
    Matrix norms = Matrix::normal(2, d, 42);
    const std::vector<int32_t> positions = {3, 900, 17};
    const std::vector<int32_t> slots = {37, -1, 2};
    const auto where = harness_.input(positions);
    const auto places = harness_.input(slots);
    harness_.send();
    StepContext& context = harness_.context();
    RopeAngles angles;
    if (c.rotary_dim > 0) {
      std::vector<float> inv_freq(static_cast<size_t>(c.rotary_dim / 2));
      for (size_t i = 0; i < inv_freq.size(); ++i)
        inv_freq[i] =
            std::pow(100.0f, -static_cast<float>(i) / static_cast<float>(inv_freq.size()));
      auto made = rope_angles(context, where, {harness_.put(inv_freq), inv_freq.size()}, 1.0f);
      ASSERT_TRUE(made.ok());
      angles = *made;
    }
    const auto half = static_cast<size_t>(kBlock * c.kv_heads * d * 2);
    constexpr size_t kBlocks = 3;
    auto* pages = context.arena.allocate_array<std::byte>(static_cast<int64_t>(2 * half * kBlocks));
    ASSERT_TRUE(context.device->stream->fill(pages, 0, 2 * half * kBlocks).ok());
    const float* weights = harness_.put(norms.values);
    const Tensor there = harness_.put(qkv, DType::kBF16);
    ASSERT_TRUE(prepare_attention(context, {.qkv = there,
                                            .heads = c.heads,
                                            .query_norm = c.norms ? weights : nullptr,
                                            .key_norm = c.norms ? weights + d : nullptr,
                                            .query_eps = 1e-6f,
                                            .key_eps = 1e-6f,
                                            .angles = c.rotary_dim > 0 ? &angles : nullptr,
                                            .pairing = c.pairing,
                                            .slots = places,
                                            .cache = {.keys = pages,
                                                      .values = pages + half,
                                                      .block_bytes = 2 * half,
                                                      .block_tokens = kBlock,
                                                      .num_kv_heads = c.kv_heads,
                                                      .head_dim = c.head_dim,
                                                      .format = KvFormat::kBF16}})
                    .ok());
    Matrix got = harness_.get(there);
    Matrix stored =
        harness_.get(Tensor::rows(pages, DType::kBF16, 2 * kBlocks * c.kv_heads * kBlock, d));
    Matrix cosines(kRows, 0), sines(kRows, 0);
    if (c.rotary_dim > 0) {
      cosines = harness_.get(angles.cos);
      sines = harness_.get(angles.sin);
    }
    for (int64_t t = 0; t < kRows; ++t) {
      for (int64_t h = 0; h < all; ++h) {
        const auto at = static_cast<size_t>(h * d);
        std::vector<float> want(static_cast<size_t>(d));
        std::ranges::copy(qkv.row(t).subspan(at, want.size()), want.begin());
        const bool is_value = h >= c.heads + c.kv_heads;
        if (c.norms && !is_value) {
          const std::vector<float> x = want;
          kernels::ref::rms_norm(x, norms.row(h < c.heads ? 0 : 1), 1e-6, want);
        }
        double largest = 0;
        for (const float v : want) largest = std::max(largest, std::fabs(double{v}));
        if (c.rotary_dim > 0 && !is_value) {
          kernels::ref::rope(want, cosines.row(t), sines.row(t),
                             c.pairing == RopePairing::kAdjacent);
        }
        // Composed of single ops, norms and rotation round one after the other.
        const double tolerance = 3 * kHalf * 1.5 * largest;
        for (size_t i = 0; i < want.size(); ++i) {
          if (!is_value) {
            ASSERT_NEAR(got.row(t)[at + i], want[i], tolerance) << "row " << t << " head " << h;
          }
          const int32_t slot = slots[static_cast<size_t>(t)];
          if (h < c.heads || slot < 0) continue;
          const int64_t kv = (h - c.heads) % c.kv_heads;
          const int64_t row =
              ((slot / kBlock * 2 + (is_value ? 1 : 0)) * c.kv_heads + kv) * kBlock + slot % kBlock;
          ASSERT_NEAR(stored.row(row)[i], want[i], tolerance) << "row " << t << " head " << h;
        }
      }
    }
    // The row without a slot was stored nowhere.
    int64_t written = 0;
    for (int64_t r = 0; r < stored.rows; ++r)
      written += std::ranges::any_of(stored.row(r), [](float v) { return v != 0.0f; });
    EXPECT_EQ(written, 2 * 2 * c.kv_heads);
  }
}

// A sequence of a padded step: a row without a place and without a context.
TEST_P(DeviceBf16Test, ARowWithoutAContextAttendsToNothing) {
  harness_.reset();
  constexpr int32_t kDim = 64;
  const std::vector<int32_t> table = {0};
  const auto blocks = harness_.input(table);
  const std::vector<kernels::SequenceSlice> slices = {{0, 1, 0, blocks.data()}};
  const auto cut = harness_.input(std::span<const kernels::SequenceSlice>(slices));
  harness_.send();
  StepContext& context = harness_.context();
  auto* pages = context.arena.allocate_array<std::byte>(2 * 16 * kDim * 2);
  ASSERT_TRUE(context.device->stream->fill(pages, 0xFF, 2 * 16 * kDim * 2).ok());
  const Tensor out = harness_.blank(1, kDim, DType::kBF16);
  const Tensor query = harness_.put(random(1, kDim, 51), DType::kBF16);
  ASSERT_TRUE(attention(context, {.queries = query.heads(1, kDim),
                                  .cache = {.keys = pages,
                                            .values = pages + 16 * kDim * 2,
                                            .block_bytes = 2 * 16 * kDim * 2,
                                            .block_tokens = 16,
                                            .num_kv_heads = 1,
                                            .head_dim = kDim,
                                            .format = KvFormat::kBF16},
                                  .sequences = cut,
                                  .variant = {.scale = 0.125f},
                                  .out = out})
                  .ok());
  for (const float v : harness_.get(out).values) EXPECT_EQ(v, 0.0f);
}

}  // namespace
}  // namespace pelton::ops
