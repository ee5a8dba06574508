#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <variant>

#include "models/config.h"
#include "weights/gguf.h"

namespace pelton::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Metadata only: tensors are optional for a configuration.
class Metadata {
 public:
  using Value = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                             std::vector<int32_t>>;

  void set(const std::string& key, Value value) { values_[key] = std::move(value); }
  void erase(const std::string& key) { values_.erase(key); }

  std::vector<std::byte> bytes() const {
    std::string out = "GGUF";
    append(&out, uint32_t{3});
    append(&out, uint64_t{0});
    append(&out, uint64_t{values_.size()});
    for (const auto& [key, value] : values_) {
      append_string(&out, key);
      std::visit([&](const auto& v) { append_value(&out, v); }, value);
    }
    while (out.size() % 32 != 0) out.push_back('\0');
    std::vector<std::byte> bytes(out.size());
    std::memcpy(bytes.data(), out.data(), out.size());
    return bytes;
  }

 private:
  template <typename T>
  static void append(std::string* out, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out->append(raw, sizeof(T));
  }
  static void append_string(std::string* out, const std::string& text) {
    append(out, uint64_t{text.size()});
    out->append(text);
  }
  static void append_value(std::string* out, uint32_t v) { append_typed(out, 4, v); }
  static void append_value(std::string* out, int32_t v) { append_typed(out, 5, v); }
  static void append_value(std::string* out, float v) { append_typed(out, 6, v); }
  static void append_value(std::string* out, bool v) {
    append_typed(out, 7, static_cast<uint8_t>(v));
  }
  static void append_value(std::string* out, const std::string& v) {
    append(out, uint32_t{8});
    append_string(out, v);
  }
  static void append_value(std::string* out, const std::vector<std::string>& v) {
    append(out, uint32_t{9});
    append(out, uint32_t{8});
    append(out, uint64_t{v.size()});
    for (const std::string& item : v) append_string(out, item);
  }
  static void append_value(std::string* out, const std::vector<int32_t>& v) {
    append(out, uint32_t{9});
    append(out, uint32_t{5});
    append(out, uint64_t{v.size()});
    for (int32_t item : v) append(out, item);
  }
  template <typename T>
  static void append_typed(std::string* out, uint32_t type, T value) {
    append(out, type);
    append(out, value);
  }

  std::map<std::string, Value> values_;
};

Metadata model(const std::string& arch) {
  Metadata m;
  m.set("general.architecture", arch);
  m.set(arch + ".block_count", 2u);
  m.set(arch + ".context_length", 128u);
  m.set(arch + ".embedding_length", 64u);
  m.set(arch + ".feed_forward_length", 128u);
  m.set(arch + ".attention.head_count", 4u);
  m.set(arch + ".attention.head_count_kv", 2u);
  m.set(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  m.set(arch + ".attention.layer_norm_epsilon", 1e-5f);
  m.set(arch + ".vocab_size", 512u);
  return m;
}

Result<ModelConfig> parse(const Metadata& metadata) {
  const auto bytes = metadata.bytes();
  const auto file = weights::GgufFile::parse(bytes, "m.gguf");
  if (!file.ok()) return file.status();
  return config_from_gguf(**file);
}

ModelConfig read(const Metadata& metadata) {
  auto config = parse(metadata);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? *std::move(config) : ModelConfig{};
}

TEST(ConfigGguf, ConventionsOfEachArchitecture) {
  const ModelConfig llama = read(model("llama"));
  EXPECT_EQ(llama.rope.pairing, ops::RopePairing::kAdjacent);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.rope.rotary_dim, 16);
  EXPECT_EQ(llama.rope.theta, 10000.0f);
  EXPECT_TRUE(llama.tie_word_embeddings);
  EXPECT_FALSE(llama.attention_bias || llama.qk_norm);

  const ModelConfig qwen2 = read(model("qwen2"));
  EXPECT_EQ(qwen2.rope.pairing, ops::RopePairing::kHalves);
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_TRUE(read(model("qwen3")).qk_norm);
  EXPECT_EQ(read(model("phi3")).model_type, "phi3");

  const ModelConfig gpt2 = read(model("gpt2"));
  EXPECT_EQ(gpt2.rope.rotary_dim, 0);
  EXPECT_EQ(gpt2.hidden_act, ops::Activation::kGeluTanh);
  EXPECT_TRUE(gpt2.attention_bias && gpt2.attention_output_bias && gpt2.mlp_bias);
  Metadata starcoder = model("starcoder");
  starcoder.erase("starcoder.attention.head_count_kv");
  EXPECT_EQ(read(starcoder).model_type, "gpt_bigcode");
  EXPECT_EQ(read(starcoder).num_key_value_heads, 1);
}

TEST(ConfigGguf, Gemma3) {
  Metadata m = model("gemma3");
  m.set("gemma3.block_count", 7u);
  m.set("gemma3.attention.key_length", 32u);
  m.set("gemma3.attention.value_length", 32u);
  m.set("gemma3.attention.sliding_window", 512u);
  m.set("gemma3.rope.scaling.type", std::string("linear"));
  m.set("gemma3.rope.scaling.factor", 8.0f);
  const ModelConfig c = read(m);
  EXPECT_EQ(c.model_type, "gemma3_text");
  EXPECT_EQ(c.embedding_scale, 8.0f);
  EXPECT_EQ(c.norm_weight_offset, 0.0f);
  EXPECT_EQ(c.attention_scale, static_cast<float>(1.0 / std::sqrt(32.0)));
  EXPECT_THAT(c.sliding_windows, ElementsAre(512, 512, 512, 512, 512, 0, 512));
  EXPECT_EQ(c.rope.theta, 1e6f);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(c.local_rope->theta, 1e4f);
  EXPECT_EQ(c.local_rope->scaling, RopeScaling::kNone);
  m.set("gemma3.attention.sliding_window_pattern", 2u);
  EXPECT_THAT(read(m).sliding_windows, ElementsAre(512, 0, 512, 0, 512, 0, 512));
  m.set("gemma3.attention.sliding_window_pattern", std::vector<int32_t>{1, 1, 0, 0, 0, 0, 1});
  EXPECT_THAT(read(m).sliding_windows, ElementsAre(512, 512, 0, 0, 0, 0, 512));
  // The 27B model divides by the even share of the hidden size instead of by the head.
  m.erase("gemma3.attention.sliding_window_pattern");
  m.set("gemma3.block_count", 62u);
  EXPECT_EQ(read(m).attention_scale, 0.25f);
}

TEST(ConfigGguf, RopeScaling) {
  Metadata m = model("llama");
  m.set("llama.rope.scaling.type", std::string("yarn"));
  m.set("llama.rope.scaling.factor", 4.0f);
  m.set("llama.rope.scaling.original_context_length", 32u);
  EXPECT_EQ(read(m).rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(read(m).rope.original_max_position_embeddings, 32);
  EXPECT_NEAR(*read(m).rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
  m.set("llama.rope.scaling.type", std::string("none"));
  EXPECT_EQ(read(m).rope.scaling, RopeScaling::kNone);
  m.set("llama.rope.scaling.type", std::string("mystery"));
  EXPECT_EQ(parse(m).status().code(), StatusCode::kUnsupported);

  Metadata old = model("llama");
  old.set("llama.rope.scale_linear", 2.0f);
  EXPECT_EQ(read(old).rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(read(old).rope.factor, 2.0f);
}

TEST(ConfigGguf, EndTokensFromKeysAndFromControlTokens) {
  Metadata m = model("qwen2");
  m.set("qwen2.vocab_size", 4u);
  m.set("tokenizer.ggml.tokens",
        std::vector<std::string>{"a", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"});
  m.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 3, 1});
  m.set("tokenizer.ggml.eos_token_id", 2u);
  m.set("tokenizer.ggml.bos_token_id", 1u);
  EXPECT_THAT(read(m).eos_token_ids, ElementsAre(2, 1));  // "<|eot_id|>" is ordinary text here
  EXPECT_EQ(read(m).bos_token_id, 1);
  m.set("tokenizer.ggml.eot_token_id", 0u);
  EXPECT_THAT(read(m).eos_token_ids, ElementsAre(2, 0, 1));
  m.set("tokenizer.ggml.eos_token_id", 4u);
  EXPECT_THAT(parse(m).status().message(), HasSubstr("m.gguf: tokenizer.ggml.eos_token_id: id 4"));
}

TEST(ConfigGguf, VocabularyFromTokensAndAgainstThem) {
  Metadata m = model("llama");
  m.set("tokenizer.ggml.tokens", std::vector<std::string>(300, "t"));
  EXPECT_EQ(read(m).vocab_size, 512);
  m.erase("llama.vocab_size");
  EXPECT_EQ(read(m).vocab_size, 300);
  m.set("llama.vocab_size", 299u);
  EXPECT_THAT(parse(m).status().message(), HasSubstr("m.gguf: llama.vocab_size"));
}

TEST(ConfigGguf, EveryLieNamesItsKey) {
  struct Lie {
    std::string key;
    std::optional<Metadata::Value> value;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Lie lies[] = {
      {"embedding_length", 0u},
      {"embedding_length", int32_t{-64}},
      {"embedding_length", 65u},
      {"embedding_length", 0xFFFFFFFFu},
      {"embedding_length", std::string("64")},
      {"embedding_length", std::nullopt},
      {"block_count", 0u},
      {"block_count", 1u << 30},
      {"context_length", 0u},
      {"context_length", std::nullopt},
      {"feed_forward_length", 0u},
      {"feed_forward_length", std::vector<int32_t>{128, 64}},
      {"attention.head_count", 0u},
      {"attention.head_count_kv", 3u},
      {"attention.head_count_kv", 8u},
      {"attention.key_length", 15u},
      {"attention.value_length", 32u},
      {"attention.layer_norm_rms_epsilon", 0.0f},
      {"attention.layer_norm_rms_epsilon", -1.0f},
      {"attention.layer_norm_rms_epsilon", 1.0f},
      {"attention.layer_norm_rms_epsilon", nan},
      {"attention.layer_norm_rms_epsilon", std::nullopt},
      {"rope.dimension_count", 32u},
      {"rope.dimension_count", 7u},
      {"rope.freq_base", 0.0f},
      {"rope.freq_base", nan},
      {"vocab_size", 0u},
      {"vocab_size", 5u << 20},
      {"expert_count", 8u},
      {"logit_scale", 2.0f},
  };
  for (const Lie& lie : lies) {
    Metadata m = model("llama");
    if (lie.value) {
      m.set("llama." + lie.key, *lie.value);
    } else {
      m.erase("llama." + lie.key);
    }
    const auto config = parse(m);
    ASSERT_FALSE(config.ok()) << lie.key;
    EXPECT_THAT(config.status().message(), HasSubstr("m.gguf: ")) << lie.key;
    EXPECT_THAT(config.status().message(), HasSubstr("llama." + lie.key)) << lie.key;
  }
  Metadata scaled = model("llama");
  scaled.set("llama.rope.scaling.type", std::string("linear"));
  EXPECT_THAT(parse(scaled).status().message(), HasSubstr("llama.rope.scaling.factor: missing"));
  scaled.set("llama.rope.scaling.factor", 0.0f);  // as some files say that nothing is scaled
  EXPECT_EQ(read(scaled).rope.scaling, RopeScaling::kNone);
  Metadata m = model("llama");
  m.set("general.architecture", std::string("mamba"));
  EXPECT_THAT(parse(m).status().message(),
              HasSubstr("general.architecture: architecture \"mamba\""));
  m.erase("general.architecture");
  EXPECT_THAT(parse(m).status().message(), HasSubstr("general.architecture: missing"));
}

TEST(ConfigGguf, EqualValuesForEachLayerAreOne) {
  Metadata m = model("llama");
  m.set("llama.feed_forward_length", std::vector<int32_t>{96, 96});
  EXPECT_EQ(read(m).intermediate_size, 96);
}

}  // namespace
}  // namespace pelton::models
