#include "engine/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/search_path.h"
#include "models/shapes.h"
#include "weights/safetensors.h"
#include "weights/synthetic.h"

namespace pelton::engine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxJsonFile = 64u << 20;

// An object file of a folder; nothing when there is no such file.
Result<std::optional<JsonDocument>> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<JsonDocument>();
  auto text = read_file(path, kMaxJsonFile);
  if (!text.ok()) return text.status();
  auto document = JsonDocument::parse(*text);
  if (!document.ok()) return document.status().with_context(path.string());
  if (!document->root().is_object()) return data_loss(path.string() + ": not a JSON object");
  if (Status s = document->refuse_duplicate_keys(); !s.ok()) return s.with_context(path.string());
  return std::optional<JsonDocument>(*std::move(document));
}

// chat_template of tokenizer_config.json: a string, or a list of named ones of which "default"
// counts.
Result<std::string> template_of(const JsonValue& tokenizer_config) {
  const auto found = tokenizer_config.get("chat_template");
  if (!found || !found->is_array()) return tokenizer_config.string_or("chat_template", "");
  const auto entries = tokenizer_config.items("chat_template");
  if (!entries.ok()) return entries.status();
  for (const JsonValue& entry : *entries) {
    const auto name = entry.string("name");
    if (!name.ok()) return name.status();
    if (*name == "default") return entry.string_or("template", "");
  }
  return std::string();
}

Status read_number(const JsonValue& object, std::string_view key, float* out) {
  const auto found = object.get(key);
  double value = *out;
  if (found && found->element().get(value) != simdjson::SUCCESS)
    return object.error_at(key, "expected a number");
  *out = static_cast<float>(value);
  return {};
}

// One id or a list.
Status read_eos_ids(const JsonValue& object, std::vector<int32_t>* ids) {
  const auto found = object.get("eos_token_id");
  if (!found) return {};
  std::vector<JsonValue> list = {*found};
  if (found->is_array()) {
    auto items = object.items("eos_token_id");
    if (!items.ok()) return items.status();
    list = *std::move(items);
  }
  for (const JsonValue& item : list) {
    int64_t id = 0;
    if (item.element().get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX)
      return item.error("expected a token id");
    ids->push_back(static_cast<int32_t>(id));
  }
  return {};
}

Status read_defaults(const JsonValue& object, SamplingParams* params) {
  struct Field {
    std::string_view key;
    float* out;
  };
  for (const Field& field :
       {Field{"temperature", &params->temperature}, Field{"top_p", &params->top_p},
        Field{"min_p", &params->min_p}, Field{"repetition_penalty", &params->repetition_penalty}}) {
    if (Status s = read_number(object, field.key, field.out); !s.ok()) return s;
  }
  if (object.get("top_k")) {
    const auto top_k = object.integer("top_k");
    if (!top_k.ok()) return top_k.status();
    if (*top_k < -1 || *top_k > INT32_MAX) return object.error_at("top_k", "out of range");
    params->top_k = static_cast<int32_t>(*top_k);
  }
  const auto samples = object.boolean("do_sample", true);
  if (!samples.ok()) return samples.status();
  if (!*samples) params->temperature = 0.0f;
  return {};
}

Status read_generation_config(const fs::path& path, const models::ModelConfig& config,
                              SamplingParams* params, std::vector<int32_t>* eos_ids) {
  const auto document = read_object(path);
  if (!document.ok()) return document.status();
  if (!document->has_value()) return {};
  const JsonValue root = (*document)->root();
  if (Status s = read_defaults(root, params); !s.ok()) return s.with_context(path.string());
  if (Status s = read_eos_ids(root, eos_ids); !s.ok()) return s.with_context(path.string());
  for (const int32_t id : *eos_ids) {
    if (id >= config.vocab_size) {
      return data_loss(fmt::format("eos_token_id {} is outside the vocabulary of {}", id,
                                   config.vocab_size))
          .with_context(path.string());
    }
  }
  // A range broken here is the file's fault, not the caller's.
  const Status valid = validate(*params, config.vocab_size, config.max_position_embeddings);
  return valid.ok() ? valid : data_loss(valid.message()).with_context(path.string());
}

}  // namespace

Result<std::unique_ptr<ModelFiles>> ModelFiles::open(const fs::path& path,
                                                     std::string_view search_path) {
  const auto model = find_model(path, search_path);
  if (!model.ok()) return model.status();
  const fs::path& found = *model;
  std::error_code error;
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

Result<std::unique_ptr<ModelFiles>> ModelFiles::from_shape(std::string_view shape, int32_t layers) {
  constexpr uint64_t kSeed = 1;  // the same weights in every run
  auto config = models::shape_config(shape, layers);
  if (!config.ok()) return config.status();
  std::unique_ptr<ModelFiles> files(new ModelFiles());
  files->config_ = std::move(config).value();
  files->synthetic_ = true;
  auto source = weights::SyntheticWeights::create(std::string(shape),
                                                  models::shape_tensors(files->config_), kSeed);
  if (!source.ok()) return source.status();
  files->source_ = std::move(source).value();
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
  if (Status s = read_generation_config(folder / "generation_config.json", config_,
                                        &default_sampling_, &eos_ids);
      !s.ok())
    return s;
  for (int32_t id : eos_ids) {
    if (std::find(config_.eos_token_ids.begin(), config_.eos_token_ids.end(), id) ==
        config_.eos_token_ids.end()) {
      config_.eos_token_ids.push_back(id);
    }
  }
  const fs::path tokenizer_path = folder / "tokenizer_config.json";
  const auto tokenizer_config = read_object(tokenizer_path);
  if (!tokenizer_config.ok()) return tokenizer_config.status();
  if (tokenizer_config->has_value()) {
    auto chat = template_of((*tokenizer_config)->root());
    if (!chat.ok()) return chat.status().with_context(tokenizer_path.string());
    chat_template_ = *std::move(chat);
  }
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
  if (synthetic_) return [](std::string_view name) { return std::string(name); };
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
  if (synthetic_) {
    return text::Tokenizer::from_json(
        R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"decoder":{"type":"ByteLevel"}})",
        "");
  }
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
  // A list that is there and of another type must not pass for one that is not there.
  const auto read_list = [&](const char* key, const char* of, const auto* list,
                             auto* out) -> Status {
    if (list != nullptr) {
      out->assign(list->begin(), list->end());
    } else if (gguf_->metadata().contains(key)) {
      return data_loss(fmt::format("{}: key '{}': not a list of {}", path(), key, of));
    }
    return {};
  };
  const char* const charsmap = "tokenizer.ggml.precompiled_charsmap";
  const char* const scores = "tokenizer.ggml.scores";
  const char* const types = "tokenizer.ggml.token_type";
  const char* const merges = "tokenizer.ggml.merges";
  std::vector<int64_t> map;
  for (const Status& status :
       {read_list(charsmap, "bytes", gguf_->get_ints(charsmap), &map),
        read_list(scores, "numbers", gguf_->get_floats(scores), &vocabulary.scores),
        read_list(types, "integers", gguf_->get_ints(types), &vocabulary.token_types),
        read_list(merges, "strings", gguf_->get_strings(merges), &vocabulary.merges)}) {
    if (!status.ok()) return status;
  }
  for (const int64_t byte : map) vocabulary.precompiled_charsmap.push_back(static_cast<char>(byte));
  auto tokenizer = text::Tokenizer::from_gguf(std::move(vocabulary));
  if (!tokenizer.ok()) return tokenizer.status().with_context(path());
  return tokenizer;
}

std::string ModelFiles::display_name() const {
  if (gguf_ != nullptr) {
    const auto name = gguf_->get_string("general.name");
    if (name.ok() && name->has_value() && !(*name)->empty()) return **name;
  }
  return synthetic_ ? path() : fs::path(path()).filename().string();
}

}  // namespace pelton::engine
