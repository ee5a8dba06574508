#include "engine/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/search_path.h"
#include "weights/safetensors.h"

namespace pelton::engine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxJsonFile = 64u << 20;
constexpr int kMaxJsonDepth = 64;

// Depth-limited parse; null value on malformed text.
std::optional<nlohmann::json> parse_json(const std::string& text) {
  bool too_deep = false;
  const nlohmann::json::parser_callback_t watch = [&](int depth, nlohmann::json::parse_event_t,
                                                      nlohmann::json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep;
  };
  nlohmann::json value = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep || value.is_discarded()) return std::nullopt;
  return value;
}

// An optional object file of a folder: absent file gives an empty object.
Result<nlohmann::json> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return nlohmann::json::object();
  auto text = read_file(path, kMaxJsonFile);
  if (!text.ok()) return text.status();
  auto value = parse_json(*text);
  if (!value || !value->is_object()) return data_loss(path.string() + ": not a JSON object");
  return std::move(*value);
}

// chat_template of tokenizer_config.json: a string, or a list of named ones of which "default"
// counts.
std::string template_of(const nlohmann::json& tokenizer_config) {
  const auto found = tokenizer_config.find("chat_template");
  if (found == tokenizer_config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return {};
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name");
    const auto body = entry.find("template");
    if (name != entry.end() && name->is_string() && *name == "default" && body != entry.end() &&
        body->is_string()) {
      return body->get<std::string>();
    }
  }
  return {};
}

template <typename T>
Status read_number(const nlohmann::json& object, const char* key, const std::string& path, T* out) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_number()) return data_loss(fmt::format("{}: '{}' is not a number", path, key));
  *out = found->get<T>();
  return {};
}

Status read_generation_config(const fs::path& path, SamplingParams* params,
                              std::vector<int32_t>* eos_ids) {
  auto object = read_object(path);
  if (!object.ok()) return object.status();
  const std::string name = path.string();
  for (const Status& status :
       {read_number(*object, "temperature", name, &params->temperature),
        read_number(*object, "top_p", name, &params->top_p),
        read_number(*object, "top_k", name, &params->top_k),
        read_number(*object, "min_p", name, &params->min_p),
        read_number(*object, "repetition_penalty", name, &params->repetition_penalty)}) {
    if (!status.ok()) return status;
  }
  const auto sample = object->find("do_sample");
  if (sample != object->end() && sample->is_boolean() && !sample->get<bool>())
    params->temperature = 0.0f;
  const auto eos = object->find("eos_token_id");
  if (eos == object->end() || eos->is_null()) return {};
  const nlohmann::json list = eos->is_array() ? *eos : nlohmann::json::array({*eos});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer())
      return data_loss(name + ": 'eos_token_id' is not an integer or a list of integers");
    const auto value = id.get<int64_t>();
    if (value < 0 || value > INT32_MAX)
      return data_loss(fmt::format("{}: 'eos_token_id' {} is out of range", name, value));
    eos_ids->push_back(static_cast<int32_t>(value));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelFiles>> ModelFiles::open(const fs::path& path,
                                                     std::string_view search_path) {
  const fs::path found = find_in_search_path(path, search_path);
  std::error_code error;
  if (!fs::exists(found, error)) return not_found(path.string() + ": no such file or folder");
  std::unique_ptr<ModelFiles> files(new ModelFiles());
  const Status status = [&] {
    if (fs::is_directory(found, error)) return files->read_folder(found);
    auto gguf = weights::GgufFile::open(found);
    if (!gguf.ok()) return gguf.status();
    files->gguf_ = gguf->get();
    files->source_ = std::move(gguf).value();
    return files->read_gguf();
  }();
  if (!status.ok()) return status;
  return files;
}

// Rotary factors that GGUF keeps as tensors: Llama 3's divisors, LongRoPE's two sets.
Status ModelFiles::read_rope_factors() {
  models::RopeConfig& rope = config_.rope;
  const bool longrope = rope.scaling == models::RopeScaling::kLongRope;
  struct Factors {
    const char* tensor;
    std::vector<float>* out;
    bool required;
  };
  for (const Factors& f : {Factors{"rope_freqs.weight", &rope.freq_factors, false},
                           Factors{"rope_factors_short.weight", &rope.short_factor, longrope},
                           Factors{"rope_factors_long.weight", &rope.long_factor, longrope}}) {
    const weights::TensorInfo* info = source_->find(f.tensor);
    if (info == nullptr) {
      if (f.required) return data_loss(fmt::format("{}: tensor '{}' is missing", path(), f.tensor));
      continue;
    }
    const int64_t size = rope.rotary_dim / 2;
    if (info->format != WeightFormat::kF32 || info->shape != std::vector<int64_t>{size}) {
      return data_loss(fmt::format("{}: tensor '{}' is not F32 [{}]", path(), f.tensor, size));
    }
    f.out->resize(static_cast<size_t>(size));
    std::memcpy(f.out->data(), info->data.data(), info->data.size());
    for (const float factor : *f.out) {
      if (!(factor > 0.0f) || !std::isfinite(factor)) {
        return data_loss(fmt::format("{}: tensor '{}' holds {}, not a positive factor", path(),
                                     f.tensor, factor));
      }
    }
  }
  return {};
}

Status ModelFiles::read_gguf() {
  auto config = models::config_from_gguf(*gguf_);
  if (!config.ok()) return config.status();
  config_ = std::move(config).value();
  if (Status s = read_rope_factors(); !s.ok()) return s;
  auto chat = gguf_->get_string("tokenizer.chat_template");
  if (!chat.ok()) return chat.status();
  chat_template_ = chat->value_or("");
  return {};
}

Status ModelFiles::read_folder(const fs::path& folder) {
  folder_ = folder;
  const fs::path config_path = folder / "config.json";
  auto text = read_file(config_path, kMaxJsonFile);
  if (!text.ok()) return text.status();
  auto config = models::config_from_json(*text, config_path.string());
  if (!config.ok()) return config.status();
  config_ = std::move(config).value();
  std::vector<int32_t> eos_ids;
  if (Status s =
          read_generation_config(folder / "generation_config.json", &default_sampling_, &eos_ids);
      !s.ok())
    return s;
  for (int32_t id : eos_ids) {
    if (std::find(config_.eos_token_ids.begin(), config_.eos_token_ids.end(), id) ==
        config_.eos_token_ids.end()) {
      config_.eos_token_ids.push_back(id);
    }
  }
  auto tokenizer_config = read_object(folder / "tokenizer_config.json");
  if (!tokenizer_config.ok()) return tokenizer_config.status();
  chat_template_ = template_of(*tokenizer_config);
  std::error_code ignored;
  if (fs::exists(folder / "chat_template.jinja", ignored)) {
    auto jinja = read_file(folder / "chat_template.jinja", kMaxJsonFile);
    if (!jinja.ok()) return jinja.status();
    chat_template_ = std::move(jinja).value();
  }
  auto source = weights::SafetensorsSet::open(folder);
  if (!source.ok()) return source.status();
  source_ = std::move(source).value();
  return {};
}

nn::WeightLoader::NameMap ModelFiles::name_map() const {
  if (gguf_ == nullptr) {
    // GPT-2's own repository leaves the prefix out.
    const bool bare = source_->find("wte.weight") != nullptr &&
                      source_->find("transformer.wte.weight") == nullptr;
    return [bare](std::string_view name) {
      constexpr std::string_view kPrefix = "transformer.";
      return std::string(bare && name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
    };
  }
  return [type = config_.model_type](std::string_view name) {
    return models::gguf_tensor_name(type, name);
  };
}

Result<std::shared_ptr<const text::Tokenizer>> ModelFiles::load_tokenizer() const {
  if (gguf_ == nullptr) return text::Tokenizer::from_folder(folder_);
  text::GgufVocabulary vocabulary;
  const auto read_string = [&](const char* key, std::string* out) -> Status {
    auto value = gguf_->get_string(key);
    if (!value.ok()) return value.status();
    *out = value->value_or("");
    return {};
  };
  const auto read_id = [&](const char* key, std::optional<int64_t>* out) -> Status {
    auto value = gguf_->get_int(key);
    if (!value.ok()) return value.status();
    *out = *value;
    return {};
  };
  const auto read_flag = [&](const char* key, std::optional<bool>* out) -> Status {
    auto value = gguf_->get_bool(key);
    if (!value.ok()) return value.status();
    *out = *value;
    return {};
  };
  for (const Status& status :
       {read_string("tokenizer.ggml.model", &vocabulary.model),
        read_string("tokenizer.ggml.pre", &vocabulary.pre),
        read_id("tokenizer.ggml.bos_token_id", &vocabulary.bos_id),
        read_id("tokenizer.ggml.eos_token_id", &vocabulary.eos_id),
        read_id("tokenizer.ggml.eot_token_id", &vocabulary.eot_id),
        read_id("tokenizer.ggml.unknown_token_id", &vocabulary.unknown_id),
        read_id("tokenizer.ggml.padding_token_id", &vocabulary.padding_id),
        read_flag("tokenizer.ggml.add_bos_token", &vocabulary.add_bos),
        read_flag("tokenizer.ggml.add_eos_token", &vocabulary.add_eos),
        read_flag("tokenizer.ggml.add_space_prefix", &vocabulary.add_space_prefix),
        read_flag("tokenizer.ggml.remove_extra_whitespaces",
                  &vocabulary.remove_extra_whitespaces)}) {
    if (!status.ok()) return status;
  }
  const auto* tokens = gguf_->get_strings("tokenizer.ggml.tokens");
  if (tokens == nullptr)
    return data_loss(path() + ": 'tokenizer.ggml.tokens' is missing or not a list of strings");
  vocabulary.tokens = *tokens;
  if (const auto* map = gguf_->get_ints("tokenizer.ggml.precompiled_charsmap")) {
    for (const int64_t byte : *map)
      vocabulary.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  if (const auto* scores = gguf_->get_floats("tokenizer.ggml.scores")) vocabulary.scores = *scores;
  if (const auto* types = gguf_->get_ints("tokenizer.ggml.token_type"))
    vocabulary.token_types = *types;
  if (const auto* merges = gguf_->get_strings("tokenizer.ggml.merges")) vocabulary.merges = *merges;
  auto tokenizer = text::Tokenizer::from_gguf(std::move(vocabulary));
  if (!tokenizer.ok()) return tokenizer.status().with_context(path());
  return tokenizer;
}

std::string ModelFiles::display_name() const {
  if (gguf_ != nullptr) {
    const auto name = gguf_->get_string("general.name");
    if (name.ok() && name->has_value() && !(*name)->empty()) return **name;
  }
  return fs::path(path()).filename().string();
}

}  // namespace pelton::engine
