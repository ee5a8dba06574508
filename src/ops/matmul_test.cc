#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include "base/cpu_features.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ref/matmul.h"
#include "kernels/ref/quant_blocks.h"
#include "ops/matmul_cases.h"
#include "tests/support/source_root.h"

namespace pelton::ops {
namespace {

using kernels::ActivationPrecision;
using kernels::WeightLayout;
using kernels::WeightMatrix;

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes)
      : storage(bytes + 64),
        span(reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) / 64 *
                                          64),
             bytes) {}
  std::vector<std::byte> storage;
  std::span<std::byte> span;
};

ThreadPool& pool(int threads) {
  static ThreadPool one(1), two(2), three(3);
  return threads == 1 ? one : (threads == 2 ? two : three);
}

struct Matrix {
  std::vector<std::byte> source;
  std::unique_ptr<AlignedBuffer> packed;
  WeightMatrix view;
};

Matrix make_matrix(WeightFormat format, int64_t rows, int64_t columns, Random& rng) {
  Matrix m;
  m.source = random_weight(format, rows, columns, 0.05f, rng);
  const PackPlan plan = plan_pack(format, rows, columns);
  if (plan.layout == WeightLayout::kSource) {
    m.view = in_place(format, rows, columns, m.source);
  } else {
    m.packed = std::make_unique<AlignedBuffer>(plan.bytes);
    m.view = pack(format, rows, columns, m.source, m.packed->span, pool(2));
  }
  return m;
}

std::vector<float> random_rows(int64_t count, Random& rng) {
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) {
    v = static_cast<float>(rng.next_u32() >> 8) * 0x1.0p-23f - 1.0f;
    if (rng.next_u32() % 64 == 0) v *= 20;  // outliers
  }
  return x;
}

struct Problem {
  MatmulCase shape;
  std::vector<Matrix> matrices;
  std::vector<WeightMatrix> weights;
  std::vector<float> bias;
  int64_t n = 0;
};

Problem make_problem(const MatmulCase& shape, std::span<const WeightFormat> formats, Random& rng) {
  Problem p;
  p.shape = shape;
  for (size_t i = 0; i < shape.segment_rows.size(); ++i) {
    p.matrices.push_back(
        make_matrix(formats[i % formats.size()], shape.segment_rows[i], shape.columns, rng));
    p.n += shape.segment_rows[i];
  }
  for (const Matrix& m : p.matrices) p.weights.push_back(m.view);
  if (shape.bias) p.bias = random_rows(p.n, rng);
  return p;
}

std::vector<float> run(const Problem& p, IsaLevel level, ActivationPrecision precision,
                       std::span<const float> x, int threads, float initial = 0.0f) {
  const auto m = static_cast<int64_t>(x.size()) / p.shape.columns;
  std::vector<float> out(static_cast<size_t>(m * p.n), initial);
  MatmulArgs args;
  args.x = Tensor::rows(const_cast<float*>(x.data()), DType::kF32, m, p.shape.columns);
  args.weights = p.weights;
  args.bias = p.bias.empty() ? nullptr : p.bias.data();
  args.out = Tensor::rows(out.data(), DType::kF32, m, p.n);
  args.accumulate = p.shape.accumulate;

  memory::StepArena counting = memory::StepArena::counting();
  StepContext plan{counting, pool(threads), kernels::kernels_for(level), precision};
  EXPECT_TRUE(matmul(plan, args).ok());
  AlignedBuffer scratch(counting.peak());
  memory::StepArena arena(scratch.span);
  StepContext context{arena, pool(threads), kernels::kernels_for(level), precision};
  EXPECT_TRUE(matmul(context, args).ok());
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_EQ(arena.peak(), counting.peak());
  return out;
}

void expect_matches_reference(const Problem& p, IsaLevel level, ActivationPrecision precision,
                              std::span<const float> x, const std::vector<float>& out,
                              float initial, const std::string& what) {
  const auto k = static_cast<size_t>(p.shape.columns);
  const size_t m = x.size() / k;
  std::vector<float> row(k);
  for (size_t i = 0; i < m; ++i) {
    size_t column = 0;
    for (const WeightMatrix& w : p.weights) {
      const bool splits =
          precision == ActivationPrecision::kInt8 &&
          kernels::kernels_for(level).matmul.split_product[static_cast<size_t>(w.format)] !=
              nullptr;
      const auto in = x.subspan(i * k, k);
      row.assign(in.begin(), in.end());
      if (precision == ActivationPrecision::kInt8 && w.layout == WeightLayout::kInterleaved) {
        kernels::ref::round_trip_int8(in, row.data());
      }
      std::vector<double> expected(static_cast<size_t>(w.rows)), size(expected.size());
      kernels::ref::product_row(w, row, expected.data(), size.data());
      for (size_t n = 0; n < expected.size(); ++n) {
        double value = expected[n];
        if (!p.bias.empty()) value += static_cast<double>(p.bias[column + n]);
        if (p.shape.accumulate) value += static_cast<double>(initial);
        double tolerance =
            (size[n] + std::fabs(value)) * 0x1.0p-24 * (8 + std::sqrt(static_cast<double>(k)));
        if (splits) tolerance += size[n] * 0x1.0p-16;  // what two BF16 numbers leave of x
        ASSERT_NEAR(out[i * static_cast<size_t>(p.n) + column + n], value, tolerance)
            << what << " row " << i << " column " << column + n;
      }
      column += static_cast<size_t>(w.rows);
    }
  }
}

struct Parameter {
  IsaLevel level;
  WeightFormat format;
};

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::string(isa_level_name(info.param.level)) + "_" +
         weight_format_name(info.param.format);
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const IsaLevel level :
       {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    for (const WeightFormatInfo& info : weight_formats()) all.push_back({level, info.format});
  }
  return all;
}

class MatmulTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (GetParam().level > cpu_features().best_level()) {
      GTEST_SKIP() << "level " << isa_level_name(GetParam().level) << " not on this machine";
    }
  }
  std::vector<MatmulCase> cases() const {
    return matmul_cases(weight_format_info(GetParam().format).block_elements);
  }
};

constexpr ActivationPrecision kBothPrecisions[] = {ActivationPrecision::kInt8,
                                                   ActivationPrecision::kF32};

TEST_P(MatmulTest, MatchesReference) {
  for (const MatmulCase& c : cases()) {
    Random rng(7);
    const Problem p = make_problem(c, std::span(&GetParam().format, 1), rng);
    for (const int64_t m : {int64_t{1}, int64_t{5}}) {
      const std::vector<float> x = random_rows(m * c.columns, rng);
      for (const ActivationPrecision precision : kBothPrecisions) {
        const std::vector<float> out = run(p, GetParam().level, precision, x, 2, 0.25f);
        expect_matches_reference(p, GetParam().level, precision, x, out, 0.25f, c.name);
      }
    }
  }
}

// Each row alone on one thread, against the same row in company of every size on 1 to 3 threads.
TEST_P(MatmulTest, RowsDoNotDependOnCompany) {
  for (const MatmulCase& c : cases()) {
    Random rng(8);
    const Problem p = make_problem(c, std::span(&GetParam().format, 1), rng);
    const std::vector<float> x = random_rows(kMatmulRows.back() * c.columns, rng);
    for (const ActivationPrecision precision : kBothPrecisions) {
      std::vector<std::vector<float>> alone;
      for (int64_t i = 0; i < kMatmulRows.back(); ++i) {
        const auto row = std::span(x).subspan(static_cast<size_t>(i * c.columns),
                                              static_cast<size_t>(c.columns));
        alone.push_back(run(p, GetParam().level, precision, row, 1));
      }
      for (const int64_t m : kMatmulRows) {
        const auto rows = std::span(x).first(static_cast<size_t>(m * c.columns));
        const int threads = static_cast<int>(m % 3) + 1;
        const std::vector<float> out = run(p, GetParam().level, precision, rows, threads);
        for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
          ASSERT_EQ(0, std::memcmp(out.data() + i * static_cast<size_t>(p.n), alone[i].data(),
                                   alone[i].size() * sizeof(float)))
              << c.name << ": row " << i << " of " << m << " on " << threads << " threads";
        }
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteStaysInItsRow) {
  Random rng(9);
  const MatmulCase c{"non_finite", {20}, 512, false, false};
  const Problem p = make_problem(c, std::span(&GetParam().format, 1), rng);
  const std::vector<float> clean = random_rows(6 * c.columns, rng);
  std::vector<float> x = clean;
  x[static_cast<size_t>(1 * c.columns + 300)] = std::numeric_limits<float>::quiet_NaN();
  x[static_cast<size_t>(4 * c.columns + 17)] = std::numeric_limits<float>::infinity();
  for (const ActivationPrecision precision : kBothPrecisions) {
    const std::vector<float> expected = run(p, GetParam().level, precision, clean, 2);
    const std::vector<float> out = run(p, GetParam().level, precision, x, 2);
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t row = i / 20;
      if (row == 1) {
        EXPECT_TRUE(std::isnan(out[i])) << i;
      } else if (row == 4) {
        EXPECT_FALSE(std::isfinite(out[i])) << i;
      } else {
        EXPECT_EQ(out[i], expected[i]) << i;
      }
    }
  }
}

// The codes at their extremes, where a narrow accumulator would saturate or wrap.
TEST_P(MatmulTest, ExtremeCodes) {
  for (const int fill : {0x00, 0xFF, 0x80, 0x7F}) {
    Random rng(10);
    MatmulCase c{"extreme", {16}, 512, false, false};
    Problem p = make_problem(c, std::span(&GetParam().format, 1), rng);
    if (p.weights[0].layout == WeightLayout::kSource) return;
    const WeightFormatInfo& info = weight_format_info(GetParam().format);
    // Every byte that is the same in all blocks' headers keeps its random value: only the codes
    // are forced, by filling the planes of the packed matrix.
    const kernels::PackedPlanes planes = kernels::packed_planes(info.format, 16, 512);
    std::memset(p.matrices[0].packed->span.data(), fill, planes.scales_offset);
    std::vector<float> x(static_cast<size_t>(2 * c.columns), 1.0f);
    for (size_t i = 512; i < x.size(); ++i) x[i] = i % 2 == 0 ? -1.0f : -0.99f;
    const std::vector<float> out = run(p, GetParam().level, ActivationPrecision::kInt8, x, 1);
    expect_matches_reference(p, GetParam().level, ActivationPrecision::kInt8, x, out, 0.0f,
                             "extreme");
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatmulTest, testing::ValuesIn(parameters()), parameter_name);

class MatmulLevelTest : public testing::TestWithParam<IsaLevel> {};

TEST_P(MatmulLevelTest, MixedFormatsShareOneActivation) {
  if (GetParam() > cpu_features().best_level()) {
    GTEST_SKIP() << "level " << isa_level_name(GetParam()) << " not on this machine";
  }
  using enum WeightFormat;
  const WeightFormat formats[] = {kQ4_K, kQ6_K, kQ8_0, kBF16, kQ4_0, kQ5_0, kQ2_K, kF32};
  Random rng(11);
  const MatmulCase c{"mixed", {48, 16, 24, 17, 32, 16, 3, 8}, 512, true, false};
  const Problem p = make_problem(c, formats, rng);
  for (const int64_t m : {int64_t{1}, int64_t{4}, int64_t{70}}) {
    const std::vector<float> x = random_rows(m * c.columns, rng);
    for (const ActivationPrecision precision : kBothPrecisions) {
      expect_matches_reference(p, GetParam(), precision, x, run(p, GetParam(), precision, x, 3),
                               0.0f, c.name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatmulLevelTest,
                         testing::Values(IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512,
                                         IsaLevel::kAmx),
                         [](const auto& info) { return isa_level_name(info.param); });

TEST(WeightPacking, KeepsEveryValue) {
  for (const WeightFormatInfo& info : weight_formats()) {
    Random rng(12);
    const Matrix m = make_matrix(info.format, 21, 768, rng);
    std::vector<float> source(21 * 768), row(768);
    kernels::ref::dequantize(info.format, m.source.data(), 21 * 768, source.data());
    for (int64_t r = 0; r < 21; ++r) {
      dequantize_row(m.view, r, row.data());
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(row[i], source[static_cast<size_t>(r) * 768 + i]) << info.name << " row " << r;
      }
    }
    EXPECT_EQ(plan_pack(info.format, 32, 768).bytes, weight_bytes(info.format, 32 * 768))
        << info.name << ": a full tile takes the file's bytes";
  }
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(QuantBlocks, MatchGoldenValues) {
  std::ifstream file(pelton::source_root() / "tests/golden/quant/blocks.txt");
  if (!file) GTEST_SKIP() << "the source tree is not on this machine";
  int formats = 0;
  for (std::string name, blocks, values; file >> name >> blocks >> values; ++formats) {
    const auto format = parse_weight_format(name);
    ASSERT_TRUE(format.has_value()) << name;
    const std::vector<std::byte> source = from_hex(blocks);
    const std::vector<std::byte> bytes = from_hex(values);
    std::vector<float> expected(bytes.size() / sizeof(float)), out(expected.size());
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    kernels::ref::dequantize(*format, source.data(), static_cast<int64_t>(out.size()), out.data());
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], expected[i]) << name << " " << i;
  }
  EXPECT_EQ(formats, 13);
}

TEST(Embedding, ReadsBothLayoutsAndScales) {
  Random rng(13);
  const Matrix packed = make_matrix(WeightFormat::kQ6_K, 40, 512, rng);
  const WeightMatrix plain = in_place(WeightFormat::kQ6_K, 40, 512, packed.source);
  const std::vector<int32_t> ids = {3, 39, 0, 3};
  AlignedBuffer scratch(64);
  memory::StepArena arena(scratch.span);
  StepContext context{arena, pool(2), kernels::generic_kernels()};
  for (const WeightMatrix* table : {&packed.view, &plain}) {
    std::vector<float> out(4 * 512), row(512);
    const EmbeddingArgs args{table, ids, 2.0f, Tensor::rows(out.data(), DType::kF32, 4, 512)};
    ASSERT_TRUE(embedding(context, args).ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      dequantize_row(plain, ids[i], row.data());
      for (size_t c = 0; c < 512; ++c) ASSERT_EQ(out[i * 512 + c], 2.0f * row[c]);
    }
  }
  std::vector<float> out(512);
  const std::vector<int32_t> bad = {40};
  const EmbeddingArgs args{&plain, bad, 1.0f, Tensor::rows(out.data(), DType::kF32, 1, 512)};
  EXPECT_EQ(embedding(context, args).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pelton::ops
