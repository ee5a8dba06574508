#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/config.h"
#include "tests/support/source_root.h"

namespace pelton::models {
namespace {

int64_t ulps_between(float a, float b) {
  return std::abs(int64_t{std::bit_cast<int32_t>(a)} - int64_t{std::bit_cast<int32_t>(b)});
}

// Positive values only. The reference's vectorised power is within one unit of the last place.
TEST(RopeFrequencies, EqualTheReference) {
  const auto text =
      read_file(pelton::source_root() / "tests/golden/models/rope.json", uint64_t{1} << 20);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const auto cases = nlohmann::json::parse(*text);
  ASSERT_GE(cases.size(), 15u);
  for (const auto& expected : cases) {
    const std::string name = expected["name"];
    SCOPED_TRACE(name);
    const auto config = config_from_json(expected["config"].dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const RopeConfig& rope = name == "gemma3_local" ? *config->local_rope : config->rope;
    const RopeFrequencies got =
        rope_frequencies(rope, expected["context_len"], config->max_position_embeddings);
    const auto want = expected["inv_freq"].get<std::vector<float>>();
    ASSERT_EQ(got.inv_freq.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_LE(ulps_between(got.inv_freq[i], want[i]), 2) << i << ": " << want[i];
    }
    EXPECT_LE(ulps_between(got.magnitude, expected["magnitude"].get<float>()), 1);
  }
}

TEST(RopeFrequencies, FactorsOfAFileDivide) {
  RopeConfig rope{.rotary_dim = 4};
  const RopeFrequencies plain = rope_frequencies(rope, 10, 10);
  rope.freq_factors = {1.0f, 8.0f};
  const RopeFrequencies divided = rope_frequencies(rope, 10, 10);
  EXPECT_EQ(divided.inv_freq[0], plain.inv_freq[0]);
  EXPECT_EQ(divided.inv_freq[1], plain.inv_freq[1] / 8.0f);
}

}  // namespace
}  // namespace pelton::models
