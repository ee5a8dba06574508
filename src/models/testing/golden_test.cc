#include "models/testing/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "models/config.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace pelton::models::testing {
namespace {

TEST(Golden, EveryModelIsWhole) {
  const std::vector<std::string> names = golden_names();
  ASSERT_GE(names.size(), 15u);
  int with_beams = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto golden = load_golden(name);
    ASSERT_TRUE(golden.ok()) << golden.status().to_string();
    ASSERT_EQ(golden->cases.size(), 2u);
    for (const GoldenCase& one : golden->cases) {
      const auto rows = static_cast<int64_t>(one.ids.size());
      ASSERT_EQ(one.logits.shape.size(), 2u);
      EXPECT_EQ(one.logits.shape[0], rows);
      EXPECT_GE(one.hidden.size(), 2u);
      for (const auto& [key, value] : one.hidden) EXPECT_EQ(value.shape[0], rows) << key;
    }
    for (const GoldenBeam& one : golden->beams) {
      EXPECT_EQ(one.sequences.size(), 4u);
      EXPECT_EQ(one.scores.size(), 4u);
    }
    with_beams += golden->beams.empty() ? 0 : 1;
  }
  EXPECT_GE(with_beams, 8);
}

TEST(Golden, RelativeErrorSeesWhatIsWrong) {
  const std::vector<float> want = {1.0f, -4.0f};
  EXPECT_EQ(relative_error(std::vector<float>{1.0f, -4.0f}, want), 0.0);
  EXPECT_EQ(relative_error(std::vector<float>{1.5f, -4.0f}, want), 0.125);
  EXPECT_GT(relative_error(std::vector<float>{1.0f}, want), 1e9);
  EXPECT_GT(relative_error(std::vector<float>{1.0f, std::numeric_limits<float>::quiet_NaN()}, want),
            1e9);
}

bool same_windows_and_rope(const ModelConfig& a, const ModelConfig& b) {
  return a.sliding_windows == b.sliding_windows && a.rope.rotary_dim == b.rope.rotary_dim &&
         a.rope.theta == b.rope.theta && a.local_rope.has_value() == b.local_rope.has_value();
}

// Both files of a model say the same of everything but storage conventions.
TEST(Golden, GgufAndJsonAgree) {
  int compared = 0;
  for (const std::string& name : golden_names()) {
    const auto golden = load_golden(name);
    ASSERT_TRUE(golden.ok());
    const auto text = read_file(golden->folder / "config.json", 1 << 20);
    ASSERT_TRUE(text.ok());
    const auto json = config_from_json(*text, "config.json");
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    EXPECT_TRUE(weights::SafetensorsSet::open(golden->folder).ok());
    if (golden->gguf.empty()) continue;
    SCOPED_TRACE(name);
    const auto file = weights::GgufFile::open(golden->gguf);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    const auto gguf = config_from_gguf(**file);
    ASSERT_TRUE(gguf.ok()) << gguf.status().to_string();
    EXPECT_EQ(gguf->model_type, json->model_type);
    EXPECT_EQ(gguf->hidden_size, json->hidden_size);
    EXPECT_EQ(gguf->num_hidden_layers, json->num_hidden_layers);
    EXPECT_EQ(gguf->num_attention_heads, json->num_attention_heads);
    EXPECT_EQ(gguf->num_key_value_heads, json->num_key_value_heads);
    EXPECT_EQ(gguf->head_dim, json->head_dim);
    EXPECT_EQ(gguf->intermediate_size, json->intermediate_size);
    EXPECT_EQ(gguf->vocab_size, json->vocab_size);
    EXPECT_EQ(gguf->max_position_embeddings, json->max_position_embeddings);
    EXPECT_EQ(gguf->norm_eps, json->norm_eps);
    EXPECT_EQ(gguf->hidden_act, json->hidden_act);
    EXPECT_EQ(gguf->tie_word_embeddings, json->tie_word_embeddings);
    EXPECT_EQ(gguf->attention_bias, json->attention_bias);
    EXPECT_EQ(gguf->attention_output_bias, json->attention_output_bias);
    EXPECT_EQ(gguf->mlp_bias, json->mlp_bias);
    EXPECT_EQ(gguf->qk_norm, json->qk_norm);
    EXPECT_EQ(gguf->attention_scale, json->attention_scale);
    EXPECT_EQ(gguf->embedding_scale, json->embedding_scale);
    EXPECT_EQ(gguf->norm_weight_offset, 0.0f);
    EXPECT_EQ(gguf->bos_token_id, json->bos_token_id);
    EXPECT_EQ(gguf->eos_token_ids.front(), json->eos_token_ids.front());
    EXPECT_TRUE(same_windows_and_rope(*gguf, *json));
    // The file holds the factors themselves: nothing is left to scale.
    if (json->rope.scaling == RopeScaling::kLlama3) {
      EXPECT_EQ(gguf->rope.scaling, RopeScaling::kNone);
    } else {
      EXPECT_EQ(gguf->rope.scaling, json->rope.scaling);
      EXPECT_EQ(gguf->rope.factor, json->rope.factor);
    }
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

std::vector<float> tensor_values(const weights::GgufFile& file, std::string_view name) {
  const auto* tensor = file.find(name);
  if (tensor == nullptr || tensor->format != WeightFormat::kF32) return {};
  std::vector<float> values(static_cast<size_t>(tensor->elements()));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

// Llama 3 and LongRoPE scaling are tensors in GGUF and words in config.json.
TEST(Golden, RopeTensorsOfGgufSayTheSameAsJson) {
  for (const char* name : {"llama-llama3", "phi3-longrope"}) {
    SCOPED_TRACE(name);
    const auto golden = load_golden(name);
    ASSERT_TRUE(golden.ok());
    const auto json =
        config_from_json(*read_file(golden->folder / "config.json", 1 << 20), "config.json");
    ASSERT_TRUE(json.ok());
    const auto file = weights::GgufFile::open(golden->gguf);
    ASSERT_TRUE(file.ok());
    auto gguf = config_from_gguf(**file);
    ASSERT_TRUE(gguf.ok());
    gguf->rope.freq_factors = tensor_values(**file, "rope_freqs.weight");
    gguf->rope.short_factor = tensor_values(**file, "rope_factors_short.weight");
    gguf->rope.long_factor = tensor_values(**file, "rope_factors_long.weight");
    for (int32_t context : {12, 48}) {
      const RopeFrequencies a = rope_frequencies(json->rope, context, 128);
      const RopeFrequencies b = rope_frequencies(gguf->rope, context, 128);
      ASSERT_EQ(a.inv_freq.size(), b.inv_freq.size());
      for (size_t i = 0; i < a.inv_freq.size(); ++i) {
        EXPECT_NEAR(a.inv_freq[i], b.inv_freq[i], 1e-6f * a.inv_freq[i]) << i;
      }
      EXPECT_NEAR(a.magnitude, b.magnitude, 1e-6f);
    }
  }
}

}  // namespace
}  // namespace pelton::models::testing
