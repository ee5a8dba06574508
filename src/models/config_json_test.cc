#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/config.h"

namespace pelton::models {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

json llama() {
  return json::parse(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "vocab_size": 512, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2})");
}

json gpt(const char* model_type) {
  return json{{"model_type", model_type}, {"n_embd", 64},      {"n_layer", 2}, {"n_head", 4},
              {"vocab_size", 512},        {"n_positions", 128}};
}

ModelConfig read(const json& document) {
  auto config = config_from_json(document.dump(), "dir/config.json");
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? *std::move(config) : ModelConfig{};
}

Status refusal(const json& document) {
  const auto config = config_from_json(document.dump(), "dir/config.json");
  EXPECT_FALSE(config.ok()) << document.dump();
  return config.status();
}

TEST(ConfigJson, Llama) {
  const ModelConfig c = read(llama());
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.rope.rotary_dim, 16);
  EXPECT_EQ(c.rope.pairing, ops::RopePairing::kHalves);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_EQ(c.attention_scale, 0.25f);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.attention_bias || c.attention_output_bias || c.mlp_bias || c.qk_norm);
  EXPECT_THAT(c.sliding_windows, ElementsAre(0, 0));
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2));

  json old = llama();
  old.erase("num_key_value_heads");
  old["attention_bias"] = true;
  old["mlp_bias"] = true;
  old["head_dim"] = 32;
  const ModelConfig d = read(old);
  EXPECT_EQ(d.num_key_value_heads, 4);
  EXPECT_EQ(d.head_dim, 32);
  EXPECT_TRUE(d.attention_bias && d.attention_output_bias && d.mlp_bias);
}

TEST(ConfigJson, EndTokensAsNumberListOrNull) {
  json c = llama();
  c["eos_token_id"] = {2, 7};
  EXPECT_THAT(read(c).eos_token_ids, ElementsAre(2, 7));
  c["eos_token_id"] = nullptr;
  c["bos_token_id"] = nullptr;
  EXPECT_TRUE(read(c).eos_token_ids.empty());
  EXPECT_EQ(read(c).bos_token_id, std::nullopt);
  for (const json& bad : {json(512), json(-1), json("2"), json({2, -1}), json({2, 512}),
                          json({2, "3"}), json(2.5), json(18446744073709551615u)}) {
    c["eos_token_id"] = bad;
    EXPECT_THAT(refusal(c).message(), HasSubstr("dir/config.json: eos_token_id: ")) << bad;
  }
}

TEST(ConfigJson, Windows) {
  json mistral = llama();
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 16;
  EXPECT_THAT(read(mistral).sliding_windows, ElementsAre(16, 16));
  mistral["sliding_window"] = nullptr;
  EXPECT_THAT(read(mistral).sliding_windows, ElementsAre(0, 0));

  json qwen = llama();
  qwen["model_type"] = "qwen2";
  qwen["sliding_window"] = 16;
  EXPECT_THAT(read(qwen).sliding_windows, ElementsAre(0, 0));
  EXPECT_TRUE(read(qwen).attention_bias);
  EXPECT_FALSE(read(qwen).attention_output_bias);
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 1;
  EXPECT_THAT(read(qwen).sliding_windows, ElementsAre(0, 16));
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(read(qwen).sliding_windows, ElementsAre(16, 0));
  qwen["layer_types"] = {"sliding_attention", "linear_attention"};
  EXPECT_EQ(refusal(qwen).code(), StatusCode::kUnsupported);
  qwen["layer_types"] = {"sliding_attention"};
  EXPECT_EQ(refusal(qwen).code(), StatusCode::kDataLoss);
}

TEST(ConfigJson, Gemma3AloneAndInsideALargerModel) {
  json text = llama();
  text["model_type"] = "gemma3_text";
  text["num_hidden_layers"] = 7;
  text["head_dim"] = 32;
  text["query_pre_attn_scalar"] = 64;
  text["sliding_window"] = 512;
  text["rope_theta"] = 1e6;
  text["rope_local_base_freq"] = 20000.0;
  text["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  text.erase("tie_word_embeddings");
  const ModelConfig c = read(text);
  EXPECT_EQ(c.embedding_scale, 8.0f);
  EXPECT_EQ(c.norm_weight_offset, 1.0f);
  EXPECT_EQ(c.attention_scale, 0.125f);
  EXPECT_EQ(c.hidden_act, ops::Activation::kGeluTanh);
  EXPECT_TRUE(c.qk_norm && c.tie_word_embeddings);
  EXPECT_THAT(c.sliding_windows, ElementsAre(512, 512, 512, 512, 512, 0, 512));
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(c.rope.theta, 1e6f);
  EXPECT_EQ(c.local_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(c.local_rope->theta, 20000.0f);
  EXPECT_EQ(c.local_rope->rotary_dim, 32);

  const json whole = {{"model_type", "gemma3"}, {"eos_token_id", {1, 106}}, {"text_config", text}};
  EXPECT_EQ(read(whole).model_type, "gemma3_text");
  EXPECT_THAT(read(whole).eos_token_ids, ElementsAre(1, 106));
  json broken = whole;
  broken["text_config"]["head_dim"] = 3;
  EXPECT_THAT(refusal(broken).message(), HasSubstr("text_config.head_dim"));
  EXPECT_THAT(refusal({{"model_type", "gemma3"}}).message(), HasSubstr("text_config: missing"));
}

TEST(ConfigJson, Gemma3RopeByLayerType) {
  json c = llama();
  c["model_type"] = "gemma3_text";
  c["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  EXPECT_EQ(read(c).rope.theta, 1e6f);
  EXPECT_EQ(read(c).rope.factor, 8.0f);
  EXPECT_EQ(read(c).local_rope->theta, 5000.0f);
  c["model_type"] = "llama";
  EXPECT_EQ(refusal(c).code(), StatusCode::kUnsupported);
}

TEST(ConfigJson, Phi3LongRope) {
  json c = llama();
  c["model_type"] = "phi3";
  c["original_max_position_embeddings"] = 32;
  c["partial_rotary_factor"] = 0.75;
  c["rope_scaling"] = {
      {"type", "su"}, {"short_factor", {1, 1, 1, 1, 1, 1}}, {"long_factor", {2, 2, 2, 2, 2, 2}}};
  const ModelConfig config = read(c);
  EXPECT_EQ(config.rope.rotary_dim, 12);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(config.rope.factor, 4.0f);
  EXPECT_THAT(config.rope.long_factor, Each(2.0f));
  c["rope_scaling"]["long_factor"] = {2, 2};
  EXPECT_THAT(refusal(c).message(), HasSubstr("12 rotary dimensions need 6"));
  c["rope_scaling"].erase("long_factor");
  EXPECT_THAT(refusal(c).message(), HasSubstr("rope_scaling.long_factor: missing"));
}

TEST(ConfigJson, GptFamily) {
  const ModelConfig gpt2 = read(gpt("gpt2"));
  EXPECT_EQ(gpt2.hidden_size, 64);
  EXPECT_EQ(gpt2.intermediate_size, 256);
  EXPECT_EQ(gpt2.num_key_value_heads, 4);
  EXPECT_EQ(gpt2.rope.rotary_dim, 0);
  EXPECT_EQ(gpt2.norm_eps, 1e-5f);
  EXPECT_EQ(gpt2.hidden_act, ops::Activation::kGeluTanh);
  EXPECT_TRUE(gpt2.tie_word_embeddings && gpt2.attention_bias && gpt2.mlp_bias);

  json c = gpt("gpt_bigcode");
  EXPECT_EQ(read(c).num_key_value_heads, 1);
  c["multi_query"] = false;
  c["activation_function"] = "gelu";
  c["n_inner"] = 100;
  EXPECT_EQ(read(c).num_key_value_heads, 4);
  EXPECT_EQ(read(c).hidden_act, ops::Activation::kGelu);
  EXPECT_EQ(read(c).intermediate_size, 100);
  c["scale_attn_weights"] = false;
  EXPECT_EQ(read(c).attention_scale, 1.0f);
  c["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_EQ(refusal(c).code(), StatusCode::kUnsupported);
}

struct Lie {
  const char* key;
  json value;
  const char* named;  // what the message must name
};

TEST(ConfigJson, EveryLieNamesItsKey) {
  const Lie lies[] = {
      {"hidden_size", 0, "hidden_size"},
      {"hidden_size", -64, "hidden_size"},
      {"hidden_size", 65, "hidden_size"},
      {"hidden_size", "64", "hidden_size"},
      {"hidden_size", 64.5, "hidden_size"},
      {"hidden_size", 1ULL << 63, "hidden_size"},
      {"hidden_size", nullptr, "hidden_size"},
      {"num_hidden_layers", 0, "num_hidden_layers"},
      {"num_hidden_layers", 1 << 30, "num_hidden_layers"},
      {"num_attention_heads", 0, "num_attention_heads"},
      {"num_attention_heads", 64, "head_dim"},
      {"num_key_value_heads", 3, "num_key_value_heads"},
      {"num_key_value_heads", 8, "num_key_value_heads"},
      {"head_dim", 15, "head_dim"},
      {"head_dim", 1 << 20, "head_dim"},
      {"intermediate_size", 1 << 30, "intermediate_size"},
      {"vocab_size", 0, "vocab_size"},
      {"vocab_size", (4 << 20) + 1, "vocab_size"},
      {"max_position_embeddings", 0, "max_position_embeddings"},
      {"max_position_embeddings", 1 << 28, "max_position_embeddings"},
      {"rms_norm_eps", 0.0, "rms_norm_eps"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps"},
      {"rms_norm_eps", 0.2, "rms_norm_eps"},
      {"rms_norm_eps", "1e-5", "rms_norm_eps"},
      {"rope_theta", 0.0, "rope_theta"},
      {"rope_theta", 1e300, "rope_theta"},
      {"partial_rotary_factor", 1.5, "partial_rotary_factor"},
      {"hidden_act", "quick_gelu", "hidden_act"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings"},
      {"bos_token_id", 512, "bos_token_id"},
      {"rope_scaling", "linear", "rope_scaling"},
      {"rope_scaling", {{"type", "unknown"}, {"factor", 2}}, "rope_scaling.rope_type"},
      {"rope_scaling", {{"type", "linear"}}, "rope_scaling.factor"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0.0}}, "rope_scaling"},
      {"rope_scaling", {{"type", "llama3"}, {"factor", 8}}, "rope_scaling.low_freq_factor"},
      {"rope_scaling",
       {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}},
       "rope_scaling"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 8}, {"beta_fast", 1}, {"beta_slow", 32}},
       "rope_scaling"},
      {"quantization_config", {{"bits", 4}}, "quantization_config"},
      {"num_experts", 8, "num_experts"},
      {"model_type", "mamba", "model_type"},
      {"model_type", 3, "model_type"},
      {"model_type", nullptr, "model_type"},
  };
  for (const Lie& lie : lies) {
    json c = llama();
    c[lie.key] = lie.value;
    const Status status = refusal(c);
    EXPECT_THAT(status.message(), HasSubstr(std::string("dir/config.json: ") + lie.named))
        << lie.key << " " << lie.value;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

// Keys that the reference reads in some architectures only.
TEST(ConfigJson, KeysOfOtherArchitecturesChangeNothing) {
  json c = llama();
  c["sliding_window"] = 4;
  c["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(c).sliding_windows, std::vector<int32_t>(2, 0));
  EXPECT_EQ(read(c).rope.rotary_dim, 16);
  c["model_type"] = "mistral";
  EXPECT_EQ(read(c).sliding_windows, std::vector<int32_t>(2, 4));
  c["model_type"] = "phi3";
  EXPECT_EQ(read(c).rope.rotary_dim, 8);
  c["partial_rotary_factor"] = 0.2;  // an odd width
  EXPECT_THAT(refusal(c).message(), HasSubstr("dir/config.json: partial_rotary_factor"));
}

// Whatever one value says, the answer is a configuration whose parts agree or one line with the
// path.
TEST(ConfigJson, AnyValueOfAnyKeyIsAnswered) {
  json all = llama();
  for (const auto& document : {gpt("gpt2"), gpt("gpt_bigcode")}) {
    for (const auto& [key, value] : document.items()) all[key] = value;
  }
  for (const char* key :
       {"head_dim", "rope_scaling", "rope_parameters", "partial_rotary_factor", "sliding_window",
        "use_sliding_window", "max_window_layers", "sliding_window_pattern", "layer_types",
        "query_pre_attn_scalar", "final_logit_softcapping", "attention_bias", "multi_query",
        "n_inner", "original_max_position_embeddings", "rope_local_base_freq", "text_config"}) {
    all[key] = nullptr;
  }
  const json values[] = {
      nullptr,
      true,
      "",
      "linear",
      -1,
      0,
      1,
      2,
      3,
      7,
      1u << 31,
      1ULL << 63,
      -9e18,
      1e308,
      1e-308,
      0.5,
      json::array(),
      json::object(),
      {1, 2},
      {-1},
      {"x"},
      {{"type", "yarn"}, {"factor", 1e300}},
      {{"rope_type", "longrope"}, {"short_factor", {0.0}}, {"long_factor", {1e9}}},
      {{"full_attention", 3}, {"sliding_attention", nullptr}}};
  for (const char* model_type : {"llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gemma3",
                                 "phi3", "gpt2", "gpt_bigcode"}) {
    for (const auto& [key, unused] : all.items()) {
      for (const json& value : values) {
        json c = all;
        if (key != "text_config" && std::string_view(model_type) == "gemma3") {
          c["text_config"] = llama();
        }
        c["model_type"] = model_type;
        c[key] = value;
        const auto config = config_from_json(c.dump(), "c.json");
        if (config.ok()) {
          EXPECT_EQ(config->num_attention_heads % config->num_key_value_heads, 0);
          EXPECT_EQ(config->sliding_windows.size(), static_cast<size_t>(config->num_hidden_layers));
          EXPECT_LE(config->rope.rotary_dim, config->head_dim);
          EXPECT_GT(config->norm_eps, 0.0f);
        } else {
          EXPECT_TRUE(config.status().message().starts_with("c.json: "))
              << config.status().message();
        }
      }
    }
  }
}

TEST(ConfigJson, TextThatIsNoConfiguration) {
  for (std::string_view text : {"", "{", "{\"a\": NaN}", "{\"model_type\": \"llama\"} x"}) {
    EXPECT_THAT(config_from_json(text, "c").status().message(), HasSubstr("c: not valid JSON"));
  }
  for (std::string_view text : {"[]", "3", "null"}) {
    EXPECT_THAT(config_from_json(text, "c").status().message(), HasSubstr("c: not a JSON object"));
  }
  const std::string twice = R"({"model_type": "llama", "hidden_size": 64, "hidden_size": 32})";
  EXPECT_THAT(config_from_json(twice, "c").status().message(),
              HasSubstr("c: the key 'hidden_size' stands twice"));
  const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(config_from_json(deep, "c").status().message(), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace pelton::models
