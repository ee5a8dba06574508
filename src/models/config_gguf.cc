#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/config_checks.h"
#include "weights/gguf.h"

namespace pelton::models {
namespace {

using weights::GgufFile;
using weights::TensorInfo;

// Typed reads of "<architecture>.<key>". The first value that is missing or wrong is kept as the
// status, and every later read returns its default, so that callers check once.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  std::string name(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  const Status& status() const { return status_; }
  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }

  void fail(std::string_view key, std::string_view reason) {
    if (status_.ok()) status_ = field_error(file_.path(), name(key), reason);
  }
  void refuse(std::string_view key, std::string_view reason) {
    if (status_.ok()) status_ = field_unsupported(file_.path(), name(key), reason);
  }

  std::optional<int64_t> find_int(std::string_view key, int64_t least, int64_t most) {
    const std::string full = name(key);
    if (const auto* list = file_.get_ints(full); list != nullptr) return from_list(key, *list);
    const auto value = kept(file_.get_int(full));
    if (value && (*value < least || *value > most)) {
      fail(key, fmt::format("{} is not in [{}, {}]", *value, least, most));
      return std::nullopt;
    }
    return value;
  }

  // A dimension: positive. Absent without a default is an error.
  int32_t dimension(std::string_view key, int64_t most,
                    std::optional<int32_t> otherwise = std::nullopt) {
    const auto value = find_int(key, 1, most);
    if (!value && !otherwise) fail(key, "missing");
    return static_cast<int32_t>(value.value_or(otherwise.value_or(1)));
  }

  std::optional<double> find_float(std::string_view key) {
    return kept(file_.get_float(name(key)));
  }
  float number(std::string_view key, double otherwise) {
    return static_cast<float>(find_float(key).value_or(otherwise));
  }
  std::string text(std::string_view key) { return kept(file_.get_string(name(key))).value_or(""); }

 private:
  template <typename T>
  std::optional<T> kept(Result<std::optional<T>> value) {
    if (value.ok()) return *value;
    if (status_.ok()) status_ = value.status();
    return std::nullopt;
  }

  // Some writers repeat a value for each layer; layers of different sizes are another matter.
  std::optional<int64_t> from_list(std::string_view key, const std::vector<int64_t>& list) {
    const bool equal = !list.empty() && std::all_of(list.begin(), list.end(),
                                                    [&](int64_t v) { return v == list.front(); });
    if (!equal || list.front() < 1 || list.front() > kMaxIntermediateSize) {
      refuse(key, "a value of its own for each layer is not supported");
      return std::nullopt;
    }
    return list.front();
  }

  const GgufFile& file_;
  std::string architecture_;
  Status status_;
};

struct Family {
  std::string_view architecture;
  std::string_view model_type;
  bool learned_positions = false;
  bool qk_norm = false;
  // Converters permute the rows of llama's query and key so that neighbours rotate together.
  ops::RopePairing pairing = ops::RopePairing::kHalves;
  ops::Activation act = ops::Activation::kSilu;
};

constexpr std::array<Family, 7> kFamilies = {{
    {.architecture = "llama", .model_type = "llama", .pairing = ops::RopePairing::kAdjacent},
    {.architecture = "qwen2", .model_type = "qwen2"},
    {.architecture = "qwen3", .model_type = "qwen3", .qk_norm = true},
    {.architecture = "gemma3",
     .model_type = "gemma3_text",
     .qk_norm = true,
     .act = ops::Activation::kGeluTanh},
    {.architecture = "phi3", .model_type = "phi3"},
    {.architecture = "gpt2",
     .model_type = "gpt2",
     .learned_positions = true,
     .act = ops::Activation::kGeluTanh},
    {.architecture = "starcoder",
     .model_type = "gpt_bigcode",
     .learned_positions = true,
     .act = ops::Activation::kGeluTanh},
}};

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

bool has_tensor(const GgufFile& file, std::string_view name) { return file.find(name) != nullptr; }

// Keys that would change the mathematics in a way nothing here implements.
void refuse_unknown_options(Keys& keys) {
  for (std::string_view key : {"expert_count", "expert_used_count"}) {
    if (keys.find_int(key, 0, 1 << 20).value_or(0) > 0) {
      keys.refuse(key, "a mixture of experts is not supported");
    }
  }
  for (std::string_view key : {"logit_scale", "residual_scale", "attention.clamp_kqv",
                               "rope.scaling.yarn_log_multiplier"}) {
    if (keys.find_float(key).value_or(0.0) != 0.0) keys.refuse(key, "not supported");
  }
}

// The embedding's shape is the vocabulary; the key and the list of tokens must agree with it.
void read_vocabulary(Keys& keys, ModelConfig* config) {
  const GgufFile& file = keys.file();
  const auto named = keys.find_int("vocab_size", 1, kMaxVocabSize);
  const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
  const TensorInfo* embedding = file.find("token_embd.weight");
  int64_t size = 0;
  if (embedding != nullptr) {
    if (embedding->shape.size() != 2 || embedding->shape[1] != config->hidden_size) {
      keys.fail("embedding_length",
                fmt::format("{}, but token_embd.weight has rows of {}", config->hidden_size,
                            embedding->shape.empty() ? 0 : embedding->shape.back()));
      return;
    }
    size = embedding->shape[0];
  } else if (named) {
    size = *named;
  } else if (tokens != nullptr) {
    size = static_cast<int64_t>(tokens->size());
  }
  if (size < 1 || size > kMaxVocabSize) {
    keys.fail("vocab_size", fmt::format("{} is not in [1, {}]", size, kMaxVocabSize));
    return;
  }
  if (named && *named != size) {
    keys.fail("vocab_size", fmt::format("{}, but token_embd.weight has {} rows", *named, size));
  }
  if (tokens != nullptr && tokens->size() > static_cast<uint64_t>(size)) {
    keys.fail("vocab_size",
              fmt::format("{} rows of token_embd.weight for {} tokens", size, tokens->size()));
  }
  config->vocab_size = static_cast<int32_t>(size);
}

// Ids that the file names, then control tokens known to end a turn or a text: files that name one
// of a pair are common.
Status read_token_ids(const GgufFile& file, ModelConfig* config) {
  const auto bos = file.get_int("tokenizer.ggml.bos_token_id");
  if (!bos.ok()) return bos.status();
  if (*bos) config->bos_token_id = static_cast<int32_t>(std::clamp<int64_t>(**bos, -1, INT32_MAX));

  std::vector<int32_t>& eos = config->eos_token_ids;
  const auto add = [&eos](int64_t id) {
    const auto narrow = static_cast<int32_t>(std::clamp<int64_t>(id, -1, INT32_MAX));
    if (std::find(eos.begin(), eos.end(), narrow) == eos.end()) eos.push_back(narrow);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = file.get_int(key);
    if (!id.ok()) return id.status();
    if (*id) add(**id);
  }
  constexpr std::array<std::string_view, 7> kEnds = {
      "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",     "<|end|>",
      "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"};
  constexpr int64_t kControl = 3;
  const auto* tokens = file.get_strings("tokenizer.ggml.tokens");
  const auto* types = file.get_ints("tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr) return Status::ok_status();
  const size_t count = std::min(tokens->size(), types->size());
  for (size_t i = 0; i < count; ++i) {
    if ((*types)[i] != kControl) continue;
    if (std::find(kEnds.begin(), kEnds.end(), (*tokens)[i]) != kEnds.end()) {
      add(static_cast<int64_t>(i));
    }
  }
  return Status::ok_status();
}

void read_scaling(Keys& keys, const ModelConfig& config, RopeConfig* rope) {
  rope->original_max_position_embeddings = keys.dimension(
      "rope.scaling.original_context_length", kMaxPositions, config.max_position_embeddings);
  const std::string type = keys.text("rope.scaling.type");
  // 0 says that nothing is scaled; the older key knows linear scaling alone.
  const double factor = keys.find_float("rope.scaling.factor")
                            .value_or(keys.find_float("rope.scale_linear").value_or(0.0));
  const auto attention_factor = keys.find_float("rope.scaling.attn_factor");
  if (attention_factor) rope->attention_factor = static_cast<float>(*attention_factor);

  if (has_tensor(keys.file(), "rope_factors_long.weight") || type == "longrope" || type == "su") {
    rope->scaling = RopeScaling::kLongRope;
    rope->factor =
        static_cast<float>(factor != 0.0 ? factor
                                         : static_cast<double>(config.max_position_embeddings) /
                                               rope->original_max_position_embeddings);
    return;
  }
  if (type == "none" || factor == 0.0) {
    const bool given =
        keys.find_float("rope.scaling.factor") || keys.find_float("rope.scale_linear");
    if (type == "yarn" || (type == "linear" && !given)) keys.fail("rope.scaling.factor", "missing");
    return;
  }
  rope->factor = static_cast<float>(factor);
  if (type.empty() || type == "linear") {
    rope->scaling = factor == 1.0 ? RopeScaling::kNone : RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope->scaling = RopeScaling::kYarn;
    rope->beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0);
    rope->beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0);
    if (keys.find_float("rope.scaling.yarn_ext_factor").value_or(1.0) != 1.0) {
      keys.refuse("rope.scaling.yarn_ext_factor", "values other than 1 are not supported");
    }
    // In GGUF this multiplies YaRN's own magnitude.
    const double own = 0.1 * std::log(std::max(factor, 1.0)) + 1.0;
    const double times = attention_factor.value_or(1.0) *
                         keys.find_float("rope.scaling.yarn_attn_factor").value_or(1.0);
    rope->attention_factor = static_cast<float>(own * times);
  } else {
    keys.refuse("rope.scaling.type",
                fmt::format("RoPE type \"{}\" is not supported", type.substr(0, 64)));
  }
}

void read_rope(Keys& keys, const Family& family, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  const bool gemma = family.architecture == "gemma3";
  rope.theta = keys.number("rope.freq_base", gemma ? 1e6 : 1e4);
  rope.pairing = family.pairing;
  rope.rotary_dim = keys.dimension("rope.dimension_count", kMaxHeadDim, config->head_dim);
  read_scaling(keys, *config, &rope);
  if (gemma) {
    // Sliding layers are never scaled.
    config->local_rope = RopeConfig{.theta = keys.number("rope.freq_base_swa", 1e4),
                                    .rotary_dim = rope.rotary_dim,
                                    .pairing = rope.pairing};
  }
}

void read_windows(Keys& keys, bool gemma, ModelConfig* config) {
  const auto layers = static_cast<size_t>(config->num_hidden_layers);
  config->sliding_windows.assign(layers, 0);
  const auto window =
      static_cast<int32_t>(keys.find_int("attention.sliding_window", 0, kMaxPositions).value_or(0));
  if (window == 0) return;
  const std::string_view pattern_key = "attention.sliding_window_pattern";
  const auto* listed = keys.file().get_ints(keys.name(pattern_key));
  if (listed != nullptr) {
    if (listed->size() != layers) {
      return keys.fail(pattern_key, fmt::format("not a list of {} values", layers));
    }
    for (size_t i = 0; i < layers; ++i) config->sliding_windows[i] = (*listed)[i] ? window : 0;
    return;
  }
  // Every pattern-th layer sees the whole context; 1 would be all of them, so it means none slide.
  const int64_t pattern = keys.find_int(pattern_key, 1, kMaxLayers).value_or(gemma ? 6 : 0);
  for (size_t i = 0; i < layers; ++i) {
    const bool full = pattern != 0 && (static_cast<int64_t>(i) + 1) % pattern == 0;
    config->sliding_windows[i] = full ? 0 : window;
  }
}

void read_dimensions(Keys& keys, const Family& family, ModelConfig* config) {
  config->hidden_size = keys.dimension("embedding_length", kMaxHiddenSize);
  config->num_hidden_layers = keys.dimension("block_count", kMaxLayers);
  config->num_attention_heads = keys.dimension("attention.head_count", kMaxHeads);
  config->num_key_value_heads =
      keys.dimension("attention.head_count_kv", kMaxHeads,
                     family.architecture == "starcoder" ? 1 : config->num_attention_heads);
  config->intermediate_size = keys.dimension("feed_forward_length", kMaxIntermediateSize);
  config->max_position_embeddings = keys.dimension("context_length", kMaxPositions);
  std::optional<int32_t> share;
  if (config->hidden_size % config->num_attention_heads == 0) {
    share = config->hidden_size / config->num_attention_heads;
  }
  const auto key_length = keys.find_int("attention.key_length", 1, kMaxHeadDim);
  if (!key_length && !share) {
    keys.fail("embedding_length", fmt::format("{} is not a multiple of {} attention heads",
                                              config->hidden_size, config->num_attention_heads));
    return;
  }
  config->head_dim = static_cast<int32_t>(key_length.value_or(share.value_or(0)));
  const auto value_length = keys.find_int("attention.value_length", 1, kMaxHeadDim);
  if (value_length.value_or(config->head_dim) != config->head_dim) {
    keys.refuse("attention.value_length",
                fmt::format("{} differs from the key's {}", *value_length, config->head_dim));
  }
}

void read_numerics(Keys& keys, const Family& family, ModelConfig* config) {
  const std::string_view eps = family.learned_positions ? "attention.layer_norm_epsilon"
                                                        : "attention.layer_norm_rms_epsilon";
  const auto norm_eps = keys.find_float(eps);
  if (!norm_eps) keys.fail(eps, "missing");
  config->norm_eps = static_cast<float>(norm_eps.value_or(1e-5));
  config->hidden_act = family.act;
  config->qk_norm = family.qk_norm;

  const GgufFile& file = keys.file();
  config->tie_word_embeddings = !has_tensor(file, "output.weight");
  config->attention_bias = family.learned_positions || family.architecture == "qwen2" ||
                           has_tensor(file, "blk.0.attn_q.bias");
  config->attention_output_bias =
      family.learned_positions || has_tensor(file, "blk.0.attn_output.bias");
  config->mlp_bias = family.learned_positions || has_tensor(file, "blk.0.ffn_down.bias");

  double scalar = config->head_dim;
  if (family.architecture == "gemma3") {
    // GGUF does not carry query_pre_attn_scalar; the one released model where it is not the head
    // size is the 27B one, known by its depth.
    if (config->num_hidden_layers == 62) {
      scalar = static_cast<double>(config->hidden_size) / config->num_attention_heads;
    }
    config->embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  }
  config->attention_scale =
      static_cast<float>(keys.find_float("attention.scale").value_or(1.0 / std::sqrt(scalar)));
  config->attn_logit_softcapping = keys.number("attn_logit_softcapping", 0.0);
  config->final_logit_softcapping = keys.number("final_logit_softcapping", 0.0);
}

FieldNames field_names(const Keys& keys, bool learned_positions) {
  FieldNames names;
  names.hidden_size = keys.name("embedding_length");
  names.num_attention_heads = keys.name("attention.head_count");
  names.num_key_value_heads = keys.name("attention.head_count_kv");
  names.head_dim = keys.name("attention.key_length");
  names.rotary_dim = keys.name("rope.dimension_count");
  names.rope_theta = keys.name("rope.freq_base");
  names.rope_scaling = keys.name("rope.scaling");
  names.norm_eps = keys.name(learned_positions ? "attention.layer_norm_epsilon"
                                               : "attention.layer_norm_rms_epsilon");
  names.sliding_window = keys.name("attention.sliding_window");
  names.bos_token_id = "tokenizer.ggml.bos_token_id";
  names.eos_token_id = "tokenizer.ggml.eos_token_id";
  return names;
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  const auto architecture = file.get_string("general.architecture");
  if (!architecture.ok()) return architecture.status();
  if (!*architecture) return field_error(file.path(), "general.architecture", "missing");
  const Family* family = find_family(**architecture);
  if (family == nullptr) {
    return field_unsupported(
        file.path(), "general.architecture",
        fmt::format("architecture \"{}\" is not supported", (*architecture)->substr(0, 64)));
  }
  Keys keys(file, std::string(family->architecture));
  ModelConfig config;
  config.model_type = family->model_type;
  refuse_unknown_options(keys);
  read_dimensions(keys, *family, &config);
  if (!keys.status().ok()) return keys.status();
  read_vocabulary(keys, &config);
  read_numerics(keys, *family, &config);
  if (!family->learned_positions) read_rope(keys, *family, &config);
  read_windows(keys, family->architecture == "gemma3", &config);
  if (!keys.status().ok()) return keys.status();
  if (Status s = read_token_ids(file, &config); !s.ok()) return s;
  if (Status s = check_config(config, file.path(), field_names(keys, family->learned_positions));
      !s.ok()) {
    return s;
  }
  return config;
}

}  // namespace pelton::models
