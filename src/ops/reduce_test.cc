#include "ops/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/rows.h"
#include "ops/op_harness.h"

namespace pelton::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ReduceTest, ArgmaxTakesTheLowestAmongEquals) {
  for (const size_t n : {1u, 3u, 8u, 31u, 32u, 33u, 1000u}) {
    std::vector<float> row(n, -1.0f);
    EXPECT_EQ(argmax(row), 0);
    for (size_t at = 0; at < n; ++at) {
      row[at] = 2.0f;
      row[n - 1] = 2.0f;
      EXPECT_EQ(argmax(row), static_cast<int32_t>(at));
      row[at] = row[n - 1] = -1.0f;
    }
  }
}

TEST(ReduceTest, ArgmaxIgnoresNan) {
  std::vector<float> row(100, kNan);
  EXPECT_EQ(argmax(row), 0);
  row[41] = -kInf;
  EXPECT_EQ(argmax(row), 41);
  row[97] = -3.0f;
  EXPECT_EQ(argmax(row), 97);
}

TEST(ReduceTest, LogSumExpMatchesDouble) {
  for (const int64_t n : {1, 5, 16, 1001, 49152}) {
    Matrix row = Matrix::normal(1, n, 21, 6.0f);
    EXPECT_NEAR(log_sum_exp(row.row(0)), kernels::ref::log_sum_exp(row.row(0)), 2e-7);
    row.values[0] = -kInf;
    if (n > 1) {
      EXPECT_NEAR(log_sum_exp(row.row(0)), kernels::ref::log_sum_exp(row.row(0)), 2e-7);
    }
  }
  EXPECT_EQ(log_sum_exp(std::vector<float>(9, -kInf)), -kInf);
}

TEST(ReduceTest, TopKEqualsASort) {
  Random random(22);
  for (const int64_t n : {1, 15, 100, 5000, 50257}) {
    for (const int32_t k : {1, 2, 40, 1000}) {
      for (const int kind : {0, 1, 2, 3}) {
        Matrix row = Matrix::normal(1, n, random.next_u64());
        if (kind == 1) {  // many ties
          for (float& v : row.values) v = std::round(v);
        } else if (kind == 2) {  // every element enters
          std::ranges::sort(row.values);
        } else if (kind == 3) {
          for (size_t i = 0; i < row.values.size(); i += 3) row.values[i] = kNan;
          for (size_t i = 1; i < row.values.size(); i += 3) row.values[i] = -kInf;
        }
        std::vector<Candidate> want;
        for (int64_t i = 0; i < n; ++i) {
          const float v = row.values[static_cast<size_t>(i)];
          if (!std::isnan(v)) want.push_back({static_cast<int32_t>(i), v});
        }
        std::ranges::sort(want, [](const Candidate& a, const Candidate& b) {
          return a.value > b.value || (a.value == b.value && a.id < b.id);
        });
        if (std::ssize(want) > k) want.resize(static_cast<size_t>(k));
        std::vector<Candidate> scratch(static_cast<size_t>(top_k_scratch(k)));
        const auto got = top_k(row.row(0), k, scratch);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_EQ(got[i].id, want[i].id) << "n " << n << " k " << k << " kind " << kind;
          ASSERT_EQ(got[i].value, want[i].value);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pelton::ops
