#include "weights/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace pelton::weights {
namespace {

std::vector<float> values_of(const TensorInfo& info) {
  std::vector<float> values(info.data.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, info.data.data() + 2 * i, 2);
    values[i] = bf16_to_f32(bits);
  }
  return values;
}

TEST(SyntheticWeightsTest, TensorsAreRandomInTheirRangeAndTheSameEveryTime) {
  const std::vector<SyntheticTensor> tensors = {{"a.weight", {300, 1001}, 0.0f, 0.5f},
                                                {"norm", {7}, 1.0f, 0.05f},
                                                {"b.weight", {300, 1001}, 0.0f, 0.5f}};
  auto one = SyntheticWeights::create("shape", tensors, 1);
  ASSERT_TRUE(one.ok());
  auto two = SyntheticWeights::create("shape", tensors, 1);
  auto other = SyntheticWeights::create("shape", tensors, 2);
  ThreadPool alone(1);
  ThreadPool many(3);
  for (const char* name : {"a.weight", "norm"}) {
    (*one)->prepare(*(*one)->find(name), alone);
    (*other)->prepare(*(*other)->find(name), alone);
  }
  for (const char* name : {"b.weight", "norm", "a.weight"})
    (*two)->prepare(*(*two)->find(name), many);

  const std::vector<float> a = values_of(*(*one)->find("a.weight"));
  EXPECT_EQ(a, values_of(*(*two)->find("a.weight")));
  EXPECT_NE(a, values_of(*(*two)->find("b.weight")));
  EXPECT_NE(a, values_of(*(*other)->find("a.weight")));
  double sum = 0;
  double squares = 0;
  for (const float v : a) {
    ASSERT_LE(std::fabs(v), 0.5f);
    sum += v;
    squares += double{v} * v;
  }
  const auto count = static_cast<double>(a.size());
  EXPECT_NEAR(sum / count, 0.0, 0.005);
  EXPECT_NEAR(squares / count, 0.25 / 3, 0.002);
  for (const float v : values_of(*(*one)->find("norm"))) EXPECT_NEAR(v, 1.0f, 0.06f);
}

TEST(SyntheticWeightsTest, WhatIsReleasedIsMadeAgain) {
  auto source = SyntheticWeights::create("shape", {{"a", {64, 4096}, 0.0f, 1.0f}}, 5);
  ASSERT_TRUE(source.ok());
  ThreadPool pool(1);
  const TensorInfo& info = *(*source)->find("a");
  (*source)->prepare(info, pool);
  const std::vector<float> before = values_of(info);
  (*source)->release(info);
  EXPECT_EQ(values_of(info), std::vector<float>(before.size(), 0.0f));
  (*source)->prepare(info, pool);
  EXPECT_EQ(values_of(info), before);
}

TEST(SyntheticWeightsTest, APlanTakesNoMemory) {
  // 140 GB of tensors that nothing prepares.
  std::vector<SyntheticTensor> tensors;
  for (int i = 0; i < 70; ++i)
    tensors.push_back({"t" + std::to_string(i), {1 << 15, 1 << 15}, 0.0f, 1.0f});
  auto source = SyntheticWeights::create("shape", tensors, 5);
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_EQ((*source)->find("t69")->data.size(), size_t{2} << 30);
  EXPECT_EQ((*source)->find("absent"), nullptr);
  EXPECT_FALSE(SyntheticWeights::create("s", {{"t", {INT64_MAX, INT64_MAX}, 0, 1}}, 5).ok());
}

}  // namespace
}  // namespace pelton::weights
