#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/json.h"
#include "base/quote.h"
#include "models/config_checks.h"

namespace pelton::models {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kMaxListLength = 1 << 16;

// Reads typed values of one object; null counts as absent. The first value that is missing or wrong
// is kept as the status, and every later read returns its default, so that callers check once.
class Fields {
 public:
  Fields(object values, std::string_view path, std::string prefix, Status* first_error)
      : object_(values), path_(path), prefix_(std::move(prefix)), first_error_(first_error) {}

  std::optional<element> find(std::string_view key) const {
    element value;
    if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }

  // Also true for null.
  bool present(std::string_view key) const {
    return object_.at_key(key).error() == simdjson::SUCCESS;
  }

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  std::string_view path() const { return path_; }
  bool failed() const { return !first_error_->ok(); }

  void fail(std::string_view key, std::string_view reason) const {
    if (!failed()) *first_error_ = field_error(path_, name(key), reason);
  }
  void refuse(std::string_view key, std::string_view reason) const {
    if (!failed()) *first_error_ = field_unsupported(path_, name(key), reason);
  }

  std::optional<int64_t> find_int(std::string_view key, int64_t least, int64_t most) const {
    const auto value = find(key);
    if (!value) return std::nullopt;
    int64_t number = 0;
    if (value->get(number) != simdjson::SUCCESS) {
      fail(key, fmt::format("{} is not an integer in [{}, {}]", shown(*value), least, most));
      return std::nullopt;
    }
    if (number < least || number > most) {
      fail(key, fmt::format("{} is not in [{}, {}]", number, least, most));
      return std::nullopt;
    }
    return number;
  }

  // A dimension: positive. Absent without a default is an error.
  int32_t dimension(std::string_view key, int64_t most,
                    std::optional<int32_t> otherwise = std::nullopt) const {
    if (!find(key) && !otherwise) fail(key, "missing");
    return static_cast<int32_t>(find_int(key, 1, most).value_or(otherwise.value_or(1)));
  }

  std::optional<double> find_number(std::string_view key) const {
    return find_as<double>(key, "a number");
  }
  float number(std::string_view key, double otherwise) const {
    return static_cast<float>(find_number(key).value_or(otherwise));
  }

  bool flag(std::string_view key, bool otherwise) const {
    return find_as<bool>(key, "true or false").value_or(otherwise);
  }

  std::string text(std::string_view key, std::string_view otherwise) const {
    return std::string(find_as<std::string_view>(key, "a string").value_or(otherwise));
  }

  std::vector<float> numbers(std::string_view key) const {
    std::vector<float> out;
    const auto value = find(key);
    if (!value) return out;
    simdjson::dom::array items;
    if (value->get(items) != simdjson::SUCCESS || items.size() > kMaxListLength) {
      fail(key, "not a list of numbers");
      return out;
    }
    for (const element item : items) {
      double number = 0.0;
      if (item.get(number) != simdjson::SUCCESS) {
        fail(key, fmt::format("{} is not a number", shown(item)));
        return out;
      }
      out.push_back(static_cast<float>(number));
    }
    return out;
  }

  // An object of its own, or nothing.
  std::optional<Fields> inner(std::string_view key) const {
    const auto value = find(key);
    if (!value) return std::nullopt;
    object values;
    if (value->get(values) != simdjson::SUCCESS) {
      fail(key, "not an object");
      return std::nullopt;
    }
    return Fields(values, path_, name(key) + ".", first_error_);
  }

  // A value as an error line shows it.
  static std::string shown(const element& value) {
    switch (value.type()) {
      case simdjson::dom::element_type::ARRAY:
        return "a list";
      case simdjson::dom::element_type::OBJECT:
        return "an object";
      case simdjson::dom::element_type::INT64:
        return fmt::format("{}", value.get_int64().value_unsafe());
      case simdjson::dom::element_type::UINT64:
        return fmt::format("{}", value.get_uint64().value_unsafe());
      case simdjson::dom::element_type::DOUBLE:
        return fmt::format("{}", value.get_double().value_unsafe());
      case simdjson::dom::element_type::STRING:
        return quote(value.get_string().value_unsafe(), 64);
      case simdjson::dom::element_type::BOOL:
        return value.get_bool().value_unsafe() ? "true" : "false";
      case simdjson::dom::element_type::NULL_VALUE:
        return "null";
    }
    return "a value";
  }

 private:
  template <typename T>
  std::optional<T> find_as(std::string_view key, std::string_view kind) const {
    const auto value = find(key);
    if (!value) return std::nullopt;
    T out{};
    if (value->get(out) != simdjson::SUCCESS) {
      fail(key, fmt::format("{} is not {}", shown(*value), kind));
      return std::nullopt;
    }
    return out;
  }

  object object_;
  std::string_view path_;
  std::string prefix_;
  Status* first_error_;
};

// What differs between the families. Defaults are those of transformers' configuration classes;
// dimensions have none except in Gemma 3, whose released text_config relies on them.
struct Family {
  std::string_view model_type;
  bool learned_positions = false;  // GPT-2 names: n_embd, n_head, ...
  bool tied_by_default = false;
  double default_eps = 1e-6;
  std::string_view default_act = "silu";
  bool bias_qkv = false;        // fixed by the architecture
  bool bias_by_config = false;  // "attention_bias" covers q, k, v and o
  bool qk_norm = false;
};

constexpr std::array<Family, 8> kFamilies = {{
    {.model_type = "llama", .bias_by_config = true},
    {.model_type = "mistral"},
    {.model_type = "qwen2", .bias_qkv = true},
    {.model_type = "qwen3", .bias_by_config = true, .qk_norm = true},
    {.model_type = "gemma3_text",
     .tied_by_default = true,
     .default_act = "gelu_pytorch_tanh",
     .bias_by_config = true,
     .qk_norm = true},
    {.model_type = "phi3", .default_eps = 1e-5},
    {.model_type = "gpt2",
     .learned_positions = true,
     .tied_by_default = true,
     .default_eps = 1e-5,
     .default_act = "gelu_new"},
    {.model_type = "gpt_bigcode",
     .learned_positions = true,
     .tied_by_default = true,
     .default_eps = 1e-5,
     .default_act = "gelu_pytorch_tanh"},
}};

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

ops::Activation read_activation(const Fields& fields, std::string_view key,
                                std::string_view otherwise) {
  const std::string name = fields.text(key, otherwise);
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  if (name == "gelu") return ops::Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return ops::Activation::kGeluTanh;
  if (name == "relu") return ops::Activation::kRelu;
  fields.refuse(key, fmt::format("activation {} is not supported", quote(name, 64)));
  return ops::Activation::kSilu;
}

// Keys of any family that would change the mathematics in a way nothing here implements.
void refuse_unknown_options(const Fields& fields) {
  if (fields.find("quantization_config")) {
    fields.refuse("quantization_config", "quantized safetensors are not supported");
  }
  for (std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (fields.find_number(key).value_or(0.0) > 1.0) {
      fields.refuse(key, "a mixture of experts is not supported");
    }
  }
  for (std::string_view key : {"is_encoder_decoder", "add_cross_attention",
                               "scale_attn_by_inverse_layer_idx", "use_bidirectional_attention"}) {
    if (fields.flag(key, false)) fields.refuse(key, "not supported");
  }
}

void read_token_ids(const Fields& fields, ModelConfig* config) {
  constexpr int64_t kMost = kMaxVocabSize;
  if (const auto id = fields.find_int("bos_token_id", 0, kMost)) {
    config->bos_token_id = static_cast<int32_t>(*id);
  }
  const auto eos = fields.find("eos_token_id");
  if (!eos) return;
  simdjson::dom::array list;
  if (eos->get(list) != simdjson::SUCCESS) {
    if (const auto id = fields.find_int("eos_token_id", 0, kMost)) {
      config->eos_token_ids = {static_cast<int32_t>(*id)};
    }
    return;
  }
  if (list.size() > 1024) return fields.fail("eos_token_id", "a list of more than 1024 ids");
  for (const element item : list) {
    int64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS || id < 0 || id > kMost) {
      return fields.fail("eos_token_id", fmt::format("{} is not a token id", Fields::shown(item)));
    }
    config->eos_token_ids.push_back(static_cast<int32_t>(id));
  }
}

std::optional<RopeScaling> parse_scaling(std::string_view type, bool phi3) {
  if (type == "default") return RopeScaling::kNone;
  // Early Phi-3 files call LongRoPE by other names.
  if (type == "longrope" || (phi3 && (type == "su" || type == "yarn"))) {
    return RopeScaling::kLongRope;
  }
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "dynamic") return RopeScaling::kDynamic;
  if (type == "yarn") return RopeScaling::kYarn;
  if (type == "llama3") return RopeScaling::kLlama3;
  return std::nullopt;
}

std::optional<float> optional_float(const std::optional<double>& value) {
  return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
}

void read_scaling_values(const Fields& scaling, const Fields& model, const ModelConfig& config,
                         RopeConfig* rope) {
  const auto outer = model.find_int("original_max_position_embeddings", 1, kMaxPositions);
  const auto inner = scaling.find_int("original_max_position_embeddings", 1, kMaxPositions);
  rope->original_max_position_embeddings =
      static_cast<int32_t>(outer ? *outer : inner.value_or(config.max_position_embeddings));
  const auto factor = scaling.find_number("factor");
  const bool by_lengths =
      rope->scaling == RopeScaling::kYarn || rope->scaling == RopeScaling::kLongRope;
  if (!factor && !by_lengths) scaling.fail("factor", "missing");
  rope->factor =
      static_cast<float>(factor.value_or(static_cast<double>(config.max_position_embeddings) /
                                         rope->original_max_position_embeddings));
  rope->attention_factor = optional_float(scaling.find_number("attention_factor"));

  if (rope->scaling == RopeScaling::kLlama3) {
    for (std::string_view key : {"low_freq_factor", "high_freq_factor"}) {
      if (!scaling.find(key)) scaling.fail(key, "missing");
    }
    rope->low_freq_factor = scaling.number("low_freq_factor", 1.0);
    rope->high_freq_factor = scaling.number("high_freq_factor", 4.0);
  } else if (rope->scaling == RopeScaling::kYarn) {
    rope->beta_fast = scaling.number("beta_fast", 32.0);
    rope->beta_slow = scaling.number("beta_slow", 1.0);
    rope->mscale = optional_float(scaling.find_number("mscale"));
    rope->mscale_all_dim = optional_float(scaling.find_number("mscale_all_dim"));
    rope->truncate = scaling.flag("truncate", true);
  } else if (rope->scaling == RopeScaling::kLongRope) {
    rope->short_factor = scaling.numbers("short_factor");
    rope->long_factor = scaling.numbers("long_factor");
    if (rope->short_factor.empty()) scaling.fail("short_factor", "missing or empty");
    if (rope->long_factor.empty()) scaling.fail("long_factor", "missing or empty");
  }
}

// `scaling`: the object that describes the scaling, rope_parameters or rope_scaling, if any.
RopeConfig read_rope(const std::optional<Fields>& scaling, const Fields& model, double theta,
                     const ModelConfig& config) {
  RopeConfig rope;
  const Fields& inner = scaling ? *scaling : model;
  rope.theta = inner.number("rope_theta", theta);
  const double partial = inner.find_number("partial_rotary_factor")
                             .value_or(model.number("partial_rotary_factor", 1.0));
  if (!(partial > 0.0 && partial <= 1.0)) {
    model.fail("partial_rotary_factor", fmt::format("{} is not in (0, 1]", partial));
    return rope;
  }
  // The reference rotates whole heads in the other architectures.
  const bool rotates_a_part = config.model_type == "phi3";
  rope.rotary_dim =
      rotates_a_part ? static_cast<int32_t>(config.head_dim * partial) : config.head_dim;
  if (!scaling) return rope;

  const std::string type = scaling->text("rope_type", scaling->text("type", "default"));
  const auto parsed = parse_scaling(type, config.model_type == "phi3");
  if (!parsed) {
    scaling->refuse("rope_type", fmt::format("RoPE type {} is not supported", quote(type, 64)));
    return rope;
  }
  rope.scaling = *parsed;
  if (rope.scaling != RopeScaling::kNone) read_scaling_values(*scaling, model, config, &rope);
  return rope;
}

void read_ropes(const Fields& fields, ModelConfig* config) {
  const bool gemma = config->model_type == "gemma3_text";
  const double theta = fields.find_number("rope_theta").value_or(gemma ? 1e6 : 1e4);
  std::optional<Fields> scaling = fields.inner("rope_parameters");
  const bool by_layer_type =
      scaling && (scaling->find("full_attention") || scaling->find("sliding_attention"));
  if (by_layer_type && !gemma) {
    fields.refuse("rope_parameters", "RoPE by layer type is not supported for this architecture");
    return;
  }
  if (!gemma) {
    if (!scaling) scaling = fields.inner("rope_scaling");
    config->rope = read_rope(scaling, fields, theta, *config);
    return;
  }
  const double local_theta = fields.find_number("rope_local_base_freq").value_or(1e4);
  std::optional<Fields> local = by_layer_type ? scaling->inner("sliding_attention") : std::nullopt;
  std::optional<Fields> global = by_layer_type ? scaling->inner("full_attention") : std::nullopt;
  if (!by_layer_type) global = scaling ? scaling : fields.inner("rope_scaling");
  config->rope = read_rope(global, fields, theta, *config);
  // Without an entry of its own the local RoPE is plain: scaling applies to full attention alone.
  if (local) {
    config->local_rope = read_rope(local, fields, local_theta, *config);
  } else {
    config->local_rope =
        RopeConfig{.theta = static_cast<float>(local_theta), .rotary_dim = config->head_dim};
  }
}

// One window a layer from "layer_types" where the file lists them, else by the family's rule.
void read_windows(const Fields& fields, ModelConfig* config) {
  const auto layers = static_cast<size_t>(config->num_hidden_layers);
  config->sliding_windows.assign(layers, 0);
  const std::string& type = config->model_type;
  const bool qwen = type == "qwen2" || type == "qwen3";
  const bool gemma = type == "gemma3_text";
  if (type == "llama") return;  // the reference reads no window there
  if (qwen && !fields.flag("use_sliding_window", false)) return;
  // null says no window; an absent key means the class default where one exists.
  const bool named_null = !fields.find("sliding_window") && fields.present("sliding_window");
  const int64_t otherwise = (type == "mistral" || qwen || gemma) && !named_null ? 4096 : 0;
  const auto window =
      static_cast<int32_t>(fields.find_int("sliding_window", 1, kMaxPositions).value_or(otherwise));
  if (window == 0) return;

  const int64_t first = fields.find_int("max_window_layers", 0, kMaxLayers).value_or(28);
  const int64_t pattern = fields.find_int("sliding_window_pattern", 1, kMaxLayers).value_or(6);
  for (size_t i = 0; i < layers; ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool slides = qwen ? layer >= first : !gemma || (layer + 1) % pattern != 0;
    if (slides) config->sliding_windows[i] = window;
  }
  const auto types = fields.find("layer_types");
  if (!types || !(qwen || gemma)) return;
  simdjson::dom::array names;
  if (types->get(names) != simdjson::SUCCESS || names.size() != layers) {
    return fields.fail("layer_types", fmt::format("not a list of {} names", layers));
  }
  size_t layer = 0;
  for (const element item : names) {
    std::string_view name;
    const bool named = item.get(name) == simdjson::SUCCESS;
    const bool slides = named && name == "sliding_attention";
    if (!slides && !(named && name == "full_attention")) {
      return fields.refuse("layer_types", fmt::format("{} is not supported", Fields::shown(item)));
    }
    config->sliding_windows[layer++] = slides ? window : 0;
  }
}

void read_decoder(const Fields& fields, const Family& family, ModelConfig* config) {
  const bool gemma = config->model_type == "gemma3_text";
  const auto otherwise = [&](int32_t value) {
    return gemma ? std::optional<int32_t>(value) : std::nullopt;
  };
  config->hidden_size = fields.dimension("hidden_size", kMaxHiddenSize);
  config->num_hidden_layers = fields.dimension("num_hidden_layers", kMaxLayers);
  config->num_attention_heads = fields.dimension("num_attention_heads", kMaxHeads, otherwise(8));
  config->num_key_value_heads =
      fields.dimension("num_key_value_heads", kMaxHeads, gemma ? 4 : config->num_attention_heads);
  config->intermediate_size = fields.dimension("intermediate_size", kMaxIntermediateSize);
  config->vocab_size = fields.dimension("vocab_size", kMaxVocabSize, otherwise(262208));
  config->max_position_embeddings =
      fields.dimension("max_position_embeddings", kMaxPositions, otherwise(131072));
  // Qwen 3 and Gemma 3 have a head size of their own; elsewhere it is the even share.
  std::optional<int32_t> head_dim;
  if (gemma) head_dim = 256;
  if (config->model_type == "qwen3") head_dim = 128;
  if (!head_dim && config->hidden_size % config->num_attention_heads == 0) {
    head_dim = config->hidden_size / config->num_attention_heads;
  }
  if (!head_dim && !fields.find("head_dim")) {
    fields.fail("hidden_size", fmt::format("{} is not a multiple of {} attention heads",
                                           config->hidden_size, config->num_attention_heads));
    return;
  }
  config->head_dim = fields.dimension("head_dim", kMaxHeadDim, head_dim);
  config->norm_eps = fields.number("rms_norm_eps", family.default_eps);
  config->hidden_act =
      read_activation(fields, gemma ? "hidden_activation" : "hidden_act", family.default_act);
  config->qk_norm = family.qk_norm;
  config->attention_output_bias = family.bias_by_config && fields.flag("attention_bias", false);
  config->attention_bias = family.bias_qkv || config->attention_output_bias;
  config->mlp_bias = config->model_type == "llama" && fields.flag("mlp_bias", false);
  config->attention_scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim)));
  if (gemma) {
    const double scalar = fields.find_number("query_pre_attn_scalar").value_or(256.0);
    if (!(scalar > 0.0)) fields.fail("query_pre_attn_scalar", "not positive");
    config->attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
    config->embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
    config->norm_weight_offset = 1.0f;
    config->attn_logit_softcapping = fields.number("attn_logit_softcapping", 0.0);
    config->final_logit_softcapping = fields.number("final_logit_softcapping", 0.0);
  }
  read_ropes(fields, config);
  read_windows(fields, config);
}

void read_gpt(const Fields& fields, const Family& family, ModelConfig* config) {
  config->hidden_size = fields.dimension("n_embd", kMaxHiddenSize);
  config->num_hidden_layers = fields.dimension("n_layer", kMaxLayers);
  config->num_attention_heads = fields.dimension("n_head", kMaxHeads);
  const bool multi_query = config->model_type == "gpt_bigcode" && fields.flag("multi_query", true);
  config->num_key_value_heads = multi_query ? 1 : config->num_attention_heads;
  // At most 2^20, so four times it is far below the limit of an intermediate size.
  config->intermediate_size =
      fields.dimension("n_inner", kMaxIntermediateSize, 4 * config->hidden_size);
  config->vocab_size = fields.dimension("vocab_size", kMaxVocabSize);
  config->max_position_embeddings = fields.dimension("n_positions", kMaxPositions);
  config->norm_eps = fields.number("layer_norm_epsilon", family.default_eps);
  config->hidden_act = read_activation(fields, "activation_function", family.default_act);
  config->attention_bias = config->attention_output_bias = config->mlp_bias = true;
  config->transposed_linears = config->model_type == "gpt2";
  if (config->hidden_size % config->num_attention_heads != 0) {
    fields.fail("n_embd", fmt::format("{} is not a multiple of {} heads", config->hidden_size,
                                      config->num_attention_heads));
    return;
  }
  config->head_dim = config->hidden_size / config->num_attention_heads;
  config->attention_scale =
      fields.flag("scale_attn_weights", true)
          ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim)))
          : 1.0f;
  config->sliding_windows.assign(static_cast<size_t>(config->num_hidden_layers), 0);
}

FieldNames field_names(const Fields& fields, const Fields& ids, bool gpt) {
  const bool parameters = fields.find("rope_parameters").has_value();
  FieldNames names;
  names.hidden_size = fields.name(gpt ? "n_embd" : "hidden_size");
  names.num_attention_heads = fields.name(gpt ? "n_head" : "num_attention_heads");
  names.num_key_value_heads = fields.name("num_key_value_heads");
  names.head_dim =
      gpt ? names.hidden_size + " / " + names.num_attention_heads : fields.name("head_dim");
  names.rotary_dim =
      fields.name(fields.find("partial_rotary_factor") ? "partial_rotary_factor" : "head_dim");
  names.rope_theta = fields.name(parameters ? "rope_parameters.rope_theta" : "rope_theta");
  names.rope_scaling = fields.name(parameters ? "rope_parameters" : "rope_scaling");
  names.norm_eps = fields.name(gpt ? "layer_norm_epsilon" : "rms_norm_eps");
  names.sliding_window = fields.name("sliding_window");
  names.bos_token_id = ids.name("bos_token_id");
  names.eos_token_id = ids.name("eos_token_id");
  return names;
}

Result<ModelConfig> read_family(const Fields& outer, const Fields& fields, const Family& family,
                                const Status& first_error) {
  ModelConfig config;
  config.model_type = family.model_type;
  refuse_unknown_options(outer);
  refuse_unknown_options(fields);
  if (family.learned_positions) {
    read_gpt(fields, family, &config);
  } else {
    read_decoder(fields, family, &config);
  }
  // A text model inside a larger one: the outer file speaks for the whole where it speaks.
  const Fields& tie = outer.find("tie_word_embeddings") ? outer : fields;
  config.tie_word_embeddings = tie.flag("tie_word_embeddings", family.tied_by_default);
  const Fields& ids = outer.find("eos_token_id") ? outer : fields;
  read_token_ids(ids, &config);
  if (!first_error.ok()) return first_error;
  if (Status s =
          check_config(config, fields.path(), field_names(fields, ids, family.learned_positions));
      !s.ok()) {
    return s;
  }
  return config;
}

}  // namespace

Result<ModelConfig> config_from_json(std::string_view document, std::string_view path) {
  const auto parsed = JsonDocument::parse(document);
  if (!parsed.ok()) return parsed.status().with_context(path);
  object root;
  if (parsed->root().element().get(root) != simdjson::SUCCESS)
    return data_loss(fmt::format("{}: not a JSON object", path));
  if (Status s = parsed->refuse_duplicate_keys(); !s.ok()) return s.with_context(path);

  Status first_error;
  const Fields outer(root, path, "", &first_error);
  std::string model_type = outer.text("model_type", "");
  if (!first_error.ok()) return first_error;
  if (model_type.empty()) return field_error(path, "model_type", "missing");
  std::optional<Fields> text;
  if (model_type == "gemma3") {
    text = outer.inner("text_config");
    if (!first_error.ok()) return first_error;
    if (!text) return field_error(path, "text_config", "missing");
    model_type = "gemma3_text";
  }
  const Family* family = find_family(model_type);
  if (family == nullptr) {
    return field_unsupported(
        path, "model_type", fmt::format("architecture {} is not supported", quote(model_type, 64)));
  }
  return read_family(outer, text ? *text : outer, *family, first_error);
}

}  // namespace pelton::models
