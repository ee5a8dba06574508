#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/rows.h"
#include "ops/elementwise_cases.h"
#include "ops/op_harness.h"

namespace pelton::ops {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();

class ElementwiseTest : public testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    if (!has_level(GetParam())) {
      GTEST_SKIP() << "this machine has no " << isa_level_name(GetParam());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, ElementwiseTest, testing::ValuesIn(kAllLevels),
                         [](const auto& info) { return isa_level_name(info.param); });

void expect_near(std::span<const float> got, std::span<const float> want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::fabs(want[i]))) << "element " << i;
  }
}

TEST_P(ElementwiseTest, RmsNormMatchesReference) {
  OpHarness harness(GetParam(), 2);
  for (const RowCase& c : kRowCases) {
    Matrix x = Matrix::normal(c.rows, c.columns, 1, 3.0f);
    Matrix weight = Matrix::normal(1, c.columns, 2);
    Matrix out(c.rows, c.columns);
    Matrix residual = Matrix::normal(c.rows, c.columns, 3);
    const Matrix before = residual;
    ASSERT_TRUE(
        rms_norm(
            harness.context(),
            {.x = x.tensor(), .weight = weight.values.data(), .eps = 1e-5f, .out = out.tensor()})
            .ok());
    const Tensor r = residual.tensor();
    ASSERT_TRUE(
        rms_norm(harness.context(),
                 {.x = x.tensor(), .weight = weight.values.data(), .eps = 1e-5f, .residual = &r})
            .ok());
    std::vector<float> want(static_cast<size_t>(c.columns));
    for (int64_t t = 0; t < c.rows; ++t) {
      kernels::ref::rms_norm(x.row(t), weight.row(0), 1e-5, want);
      expect_near(out.row(t), want, 8 * kEps);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(residual.row(t)[i],
                  before.values[static_cast<size_t>(t * c.columns) + i] + out.row(t)[i]);
      }
    }
  }
}

TEST_P(ElementwiseTest, RmsNormOfHeadsNormalizesEachHead) {
  OpHarness harness(GetParam());
  Matrix x = Matrix::normal(5, 3 * 40, 4);
  Matrix weight = Matrix::normal(1, 40, 5);
  Matrix want = x;
  const Tensor heads = x.tensor().heads(3, 40);
  for (int64_t t = 0; t < 5; ++t) {
    for (size_t h = 0; h < 3; ++h) {
      const auto head = want.row(t).subspan(h * 40, 40);
      const std::vector<float> in(head.begin(), head.end());
      kernels::ref::rms_norm(in, weight.row(0), 1e-6, head);
    }
  }
  ASSERT_TRUE(rms_norm(harness.context(),
                       {.x = heads, .weight = weight.values.data(), .eps = 1e-6f, .out = heads})
                  .ok());
  expect_near(x.values, want.values, 8 * kEps);
}

TEST_P(ElementwiseTest, LayerNormMatchesReference) {
  OpHarness harness(GetParam(), 2);
  for (const RowCase& c : kRowCases) {
    Matrix x = Matrix::normal(c.rows, c.columns, 6);
    for (float& v : x.values) v += 5.0f;  // a mean that a one-pass variance would lose
    Matrix weight = Matrix::normal(1, c.columns, 7);
    Matrix bias = Matrix::normal(1, c.columns, 8);
    Matrix out(c.rows, c.columns);
    std::vector<float> want(static_cast<size_t>(c.columns));
    for (const bool with_bias : {true, false}) {
      ASSERT_TRUE(layer_norm(harness.context(), {.x = x.tensor(),
                                                 .weight = weight.values.data(),
                                                 .bias = with_bias ? bias.values.data() : nullptr,
                                                 .out = out.tensor()})
                      .ok());
      for (int64_t t = 0; t < c.rows; ++t) {
        kernels::ref::layer_norm(x.row(t), weight.row(0),
                                 with_bias ? bias.row(0) : std::span<float>{}, 1e-5, want);
        // The mean's rounding, relative to the deviations.
        if (c.columns > 1) expect_near(out.row(t), want, 64 * kEps);
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeRotatesBothPairings) {
  OpHarness harness(GetParam(), 2);
  for (const RopeCase& c : kRopeCases) {
    const std::vector<int32_t> positions = {0, 1, 17, 4095, 131071};
    std::vector<float> inv_freq(static_cast<size_t>(c.rotary_dim / 2));
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      inv_freq[i] =
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.rotary_dim));
    }
    for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kAdjacent}) {
      Matrix x = Matrix::normal(5, c.heads * c.head_dim, 9);
      Matrix want = x;
      StepContext& context = harness.context();
      auto angles = rope_angles(context, positions, inv_freq, 1.25f);
      ASSERT_TRUE(angles.ok());
      for (size_t t = 0; t < positions.size(); ++t) {
        const auto row = static_cast<int64_t>(t);
        for (size_t i = 0; i < inv_freq.size(); ++i) {
          const float angle = static_cast<float>(positions[t]) * inv_freq[i];
          ASSERT_NEAR(angles->cos.row_f32(row)[i], 1.25 * std::cos(double{angle}), 2 * kEps);
          ASSERT_NEAR(angles->sin.row_f32(row)[i], 1.25 * std::sin(double{angle}), 2 * kEps);
        }
        for (int64_t h = 0; h < c.heads; ++h) {
          kernels::ref::rope(want.row(row).subspan(static_cast<size_t>(h * c.head_dim),
                                                   static_cast<size_t>(c.head_dim)),
                             {angles->cos.row_f32(row), inv_freq.size()},
                             {angles->sin.row_f32(row), inv_freq.size()},
                             pairing == RopePairing::kAdjacent);
        }
      }
      ASSERT_TRUE(rope(context, x.tensor().heads(c.heads, c.head_dim), *angles, pairing).ok());
      expect_near(x.values, want.values, 4 * kEps);
    }
  }
}

TEST_P(ElementwiseTest, ActivationsMatchReference) {
  OpHarness harness(GetParam(), 2);
  constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                 Activation::kRelu};
  double (*const reference[])(double) = {kernels::ref::silu, kernels::ref::gelu,
                                         kernels::ref::gelu_tanh, kernels::ref::relu};
  // A sweep through every branch, its ends far outside what models produce.
  Matrix gate(1, 200003);
  for (size_t i = 0; i < gate.values.size(); ++i) {
    gate.values[i] = -100.0f + 0.001f * static_cast<float>(i);
  }
  gate.values[0] = -1e30f;
  gate.values[1] = 1e30f;
  gate.values[2] = -0.0f;
  Matrix up = Matrix::normal(1, gate.columns, 10);
  for (size_t a = 0; a < 4; ++a) {
    Matrix plain = gate;
    Matrix gated(1, gate.columns);
    ASSERT_TRUE(activate(harness.context(), kAll[a], plain.tensor()).ok());
    ASSERT_TRUE(
        gated_activation(harness.context(), kAll[a], gate.tensor(), up.tensor(), gated.tensor())
            .ok());
    for (size_t i = 0; i < gate.values.size(); ++i) {
      const double want = reference[a](gate.values[i]);
      // gelu's 1 + erf cancels below zero, and the rounding of gelu_tanh's cubic grows with its
      // exponent: errors are relative to |x|.
      const double scale = std::fabs(a == 1 || a == 2 ? gate.values[i] : want);
      ASSERT_NEAR(plain.values[i], want, 8 * kEps * scale + 1e-35) << "at " << gate.values[i];
      ASSERT_EQ(gated.values[i], plain.values[i] * up.values[i]);
    }
  }
}

TEST_P(ElementwiseTest, SoftCapAddAndGather) {
  OpHarness harness(GetParam());
  Matrix x(1, 20001);
  for (size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = -200.0f + 0.02f * static_cast<float>(i) + 1e-4f;
  }
  const Matrix before = x;
  ASSERT_TRUE(soft_cap(harness.context(), x.tensor(), 30.0f).ok());
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double want = 30.0 * std::tanh(before.values[i] / 30.0);
    ASSERT_NEAR(x.values[i], want, 6 * kEps * std::fabs(want)) << "at " << before.values[i];
  }

  Matrix a = Matrix::normal(4, 35, 11);
  Matrix b = Matrix::normal(4, 35, 12);
  const Matrix sum_before = a;
  ASSERT_TRUE(add(harness.context(), a.tensor(), b.tensor()).ok());
  for (size_t i = 0; i < a.values.size(); ++i) {
    ASSERT_EQ(a.values[i], sum_before.values[i] + b.values[i]);
  }
  const std::vector<int32_t> rows = {3, 0};
  Matrix picked(2, 35);
  ASSERT_TRUE(gather_rows(harness.context(), a.tensor(), rows, picked.tensor()).ok());
  EXPECT_TRUE(std::ranges::equal(picked.row(0), a.row(3)));
  EXPECT_TRUE(std::ranges::equal(picked.row(1), a.row(0)));
}

TEST_P(ElementwiseTest, NanIsNotSwallowed) {
  OpHarness harness(GetParam());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Activation a : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    Matrix x(1, 19);
    x.values[3] = nan;
    x.values[18] = nan;
    ASSERT_TRUE(activate(harness.context(), a, x.tensor()).ok());
    EXPECT_TRUE(std::isnan(x.values[3]));
    EXPECT_TRUE(std::isnan(x.values[18]));
    EXPECT_FALSE(std::isnan(x.values[4]));
  }
}

// A row's bits are the same alone and among others, with any number of threads.
TEST_P(ElementwiseTest, RowsDoNotDependOnTheirNeighbours) {
  Matrix x = Matrix::normal(129, 576, 13);
  Matrix weight = Matrix::normal(1, 576, 14);
  const auto run = [&](int threads, int64_t first, int64_t count) {
    OpHarness harness(GetParam(), threads);
    Matrix out(count, 576);
    const Tensor in = Tensor::rows(x.row(first).data(), DType::kF32, count, 576);
    EXPECT_TRUE(
        rms_norm(harness.context(), {.x = in, .weight = weight.values.data(), .out = out.tensor()})
            .ok());
    EXPECT_TRUE(activate(harness.context(), Activation::kSilu, out.tensor()).ok());
    return out;
  };
  const Matrix whole = run(1, 0, 129);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(0, std::memcmp(run(threads, 0, 129).values.data(), whole.values.data(),
                             whole.values.size() * sizeof(float)));
  }
  const Matrix alone = run(2, 77, 1);
  EXPECT_EQ(0,
            std::memcmp(alone.values.data(), whole.values.data() + 77 * 576, 576 * sizeof(float)));
}

TEST(ElementwisePlanTest, PlanningTouchesNothing) {
  memory::StepArena arena = memory::StepArena::counting();
  ThreadPool pool(1);
  StepContext context{arena, pool, kernels::generic_kernels()};
  const Tensor x = arena.rows(DType::kF32, 1024, 576);
  const Tensor y = arena.rows(DType::kF32, 1024, 576);
  const size_t before = arena.used();
  EXPECT_TRUE(rms_norm(context, {.x = x, .out = y}).ok());
  EXPECT_TRUE(layer_norm(context, {.x = x, .out = y}).ok());
  EXPECT_TRUE(add(context, x, y).ok());
  EXPECT_TRUE(soft_cap(context, x, 30.0f).ok());
  EXPECT_TRUE(gated_activation(context, Activation::kSilu, x, y, x).ok());
  EXPECT_EQ(arena.used(), before);
  const std::vector<int32_t> positions(1024);
  const std::vector<float> inv_freq(32);
  const auto angles = rope_angles(context, positions, inv_freq, 1.0f);
  ASSERT_TRUE(angles.ok());
  EXPECT_EQ(arena.used(), before + 2 * 1024 * 32 * sizeof(float));
  EXPECT_TRUE(rope(context, x.heads(9, 64), *angles, RopePairing::kHalves).ok());
}

}  // namespace
}  // namespace pelton::ops
