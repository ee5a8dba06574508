#include "cli/model_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "weights/gguf.h"
#include "weights/json_events.h"
#include "weights/safetensors.h"

namespace pelton::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownBytes = 64;    // of a text
constexpr size_t kShownElements = 4;  // of an array

// One printable line of at most kShownBytes bytes, quoted.
std::string shown(std::string_view text) {
  std::string out = "\"";
  size_t pos = 0;
  while (pos < text.size() && pos < kShownBytes) {
    const size_t begin = pos;
    uint32_t code = 0;
    const bool valid = decode_utf8(text, &pos, &code);
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == '"' || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (!valid || code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 ||
               code == 0x2029) {
      for (char byte : text.substr(begin, pos - begin))
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else {
      out += text.substr(begin, pos - begin);
    }
  }
  out += pos < text.size() ? "\"..." : "\"";
  return out;
}

template <typename T>
std::string shown_array(const std::vector<T>& values) {
  std::string out = "[";
  for (size_t i = 0; i < std::min(values.size(), kShownElements); ++i) {
    if (i > 0) out += ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      out += shown(values[i]);
    } else {
      out += fmt::format("{}", values[i]);
    }
  }
  return out + (values.size() > kShownElements ? ", ...]" : "]");
}

ReportedValue reported(const std::string& key, const weights::GgufValue& value) {
  struct Visitor {
    using Pair = std::pair<std::string, std::string>;
    Pair operator()(uint64_t v) const { return {"integer", fmt::format("{}", v)}; }
    Pair operator()(int64_t v) const { return {"integer", fmt::format("{}", v)}; }
    Pair operator()(double v) const { return {"float", fmt::format("{:g}", v)}; }
    Pair operator()(bool v) const { return {"boolean", v ? "true" : "false"}; }
    Pair operator()(const std::string& v) const { return {"string", shown(v)}; }
    Pair operator()(const std::vector<std::string>& v) const {
      return {fmt::format("array of {} strings", v.size()), shown_array(v)};
    }
    Pair operator()(const std::vector<int64_t>& v) const {
      return {fmt::format("array of {} integers", v.size()), shown_array(v)};
    }
    Pair operator()(const std::vector<double>& v) const {
      return {fmt::format("array of {} floats", v.size()), shown_array(v)};
    }
  };
  auto [type, text] = std::visit(Visitor(), value);
  return {key, std::move(type), std::move(text)};
}

void add_tensors(const weights::WeightSource& source, ModelReport* report) {
  for (const weights::TensorInfo& tensor : source.tensors()) {
    report->tensors.push_back({tensor.name, weight_format_name(tensor.format), tensor.shape,
                               static_cast<uint64_t>(tensor.elements()), tensor.data.size()});
  }
  report->mapped_bytes = source.mapped_bytes();
}

void add_unused(const weights::SafetensorsSet& set, ModelReport* report) {
  for (const weights::UnusedTensor& tensor : set.unused()) {
    uint64_t elements = 1;  // the reader has proved that the product fits
    for (int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
    report->tensors.push_back({tensor.name, tensor.dtype, tensor.shape, elements, tensor.bytes});
  }
}

void sum_formats(ModelReport* report) {
  std::map<std::string_view, ReportedFormat> sums;
  for (const ReportedTensor& tensor : report->tensors) {
    ReportedFormat& sum = sums[tensor.format];
    sum.format = tensor.format;
    ++sum.tensors;
    sum.elements += tensor.elements;
    sum.bytes += tensor.bytes;
    report->parameters += tensor.elements;
    report->tensor_bytes += tensor.bytes;
  }
  for (auto& [name, sum] : sums) report->formats.push_back(std::move(sum));
  std::stable_sort(report->formats.begin(), report->formats.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

void take_config(Result<models::ModelConfig> config, ModelReport* report) {
  if (config.ok()) {
    report->config = *std::move(config);
  } else {
    report->config_error = config.status().message();
  }
}

// A string key; empty when absent or of another type: a report shows what there is.
std::string text_of(const weights::GgufFile& file, std::string_view key) {
  const auto value = file.get_string(key);
  return value.ok() ? value->value_or("") : "";
}

Result<ModelReport> report_gguf(const fs::path& path) {
  const auto opened = weights::GgufFile::open(path);
  if (!opened.ok()) return opened.status();
  const weights::GgufFile& file = **opened;
  ModelReport report;
  report.path = file.path();
  report.container = fmt::format("GGUF v{}", file.version());
  report.name = text_of(file, "general.name");
  report.architecture = text_of(file, "general.architecture");
  for (const auto& [key, value] : file.metadata()) report.metadata.push_back(reported(key, value));
  add_tensors(file, &report);
  report.tokenizer = text_of(file, "tokenizer.ggml.model");
  const std::string pre = text_of(file, "tokenizer.ggml.pre");
  if (!pre.empty()) report.tokenizer += fmt::format(" (pre {})", pre);
  if (const auto* tokens = file.get_strings("tokenizer.ggml.tokens"))
    report.vocab_size = std::ssize(*tokens);
  if (const auto* merges = file.get_strings("tokenizer.ggml.merges"))
    report.merges = std::ssize(*merges);
  report.chat_template = text_of(file, "tokenizer.chat_template");
  take_config(models::config_from_gguf(file), &report);
  return report;
}

// Kind and sizes of a tokenizer.json, without building it: the document may be tens of megabytes.
class TokenizerListener final : public weights::JsonListener {
 public:
  std::string kind;
  int64_t max_id = -1;
  int64_t vocabulary = 0;  // entries of a list
  int64_t merges = 0;

  Status begin_object() override { return enter(); }
  Status begin_array() override {
    if (inside("model", "merges") && depth_ == 3) ++merges;  // ["a", "b"]
    if (inside("model", "vocab") && depth_ == 3) ++vocabulary;
    return enter();
  }
  Status end_object() override { return leave(); }
  Status end_array() override { return leave(); }
  Status key(std::string& name) override {
    if (depth_ <= kDepth) keys_[depth_ - 1] = std::move(name);
    return {};
  }
  Status string(std::string& value) override {
    if (inside("model", "type") && depth_ == 2) kind = std::move(value);
    if (inside("model", "merges") && depth_ == 3) ++merges;  // "a b"
    return {};
  }
  Status unsigned_integer(uint64_t value) override {
    const bool vocabulary_id = inside("model", "vocab") && depth_ == 3;
    const bool added_id = keys_[0] == "added_tokens" && depth_ == 3 && keys_[2] == "id";
    if ((vocabulary_id || added_id) && value <= INT32_MAX)
      max_id = std::max(max_id, static_cast<int64_t>(value));
    return {};
  }
  Status other(std::string_view) override { return {}; }

  int64_t vocab_size() const { return std::max(max_id + 1, vocabulary); }

 private:
  static constexpr int kDepth = 3;

  bool inside(std::string_view outer, std::string_view inner) const {
    return keys_[0] == outer && keys_[1] == inner;
  }
  Status enter() {
    if (++depth_ <= kDepth) keys_[depth_ - 1].clear();
    return {};
  }
  Status leave() {
    --depth_;
    return {};
  }

  int depth_ = 0;
  std::array<std::string, kDepth> keys_;
};

Status report_tokenizer(const fs::path& folder, ModelReport* report) {
  std::error_code ignored;
  const fs::path json = folder / "tokenizer.json";
  if (fs::exists(json, ignored)) {
    const auto text = read_file(json, kMaxJsonBytes);
    if (!text.ok()) return text.status();
    TokenizerListener listener;
    if (Status s = weights::parse_json_events(*text, json.string(), &listener); !s.ok()) return s;
    report->tokenizer = listener.kind.empty() ? "tokenizer.json" : listener.kind;
    report->vocab_size = listener.vocab_size();
    report->merges = listener.merges;
  } else if (fs::exists(folder / "tokenizer.model", ignored)) {
    report->tokenizer = "tokenizer.model";
  }
  return {};
}

// An object file of the folder; nothing when absent.
Result<std::optional<JsonDocument>> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<JsonDocument>();
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text.ok()) return text.status();
  auto document = JsonDocument::parse(*text);
  if (!document.ok()) return document.status().with_context(path.string());
  if (!document->root().is_object()) return data_loss(path.string() + ": not a JSON object");
  return std::optional<JsonDocument>(*std::move(document));
}

Status report_template(const fs::path& folder, ModelReport* report) {
  std::error_code ignored;
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::exists(jinja, ignored)) {
    auto text = read_file(jinja, kMaxJsonBytes);
    if (text.ok()) report->chat_template = *std::move(text);
    return text.status();
  }
  const auto settings = read_object(folder / "tokenizer_config.json");
  if (!settings.ok()) return settings.status();
  if (!settings->has_value()) return {};
  const auto found = (*settings)->root().get("chat_template");
  if (!found) return {};
  std::string_view text;
  simdjson::dom::array entries;
  if (found->element().get(text) == simdjson::SUCCESS) report->chat_template = text;
  if (found->element().get(entries) != simdjson::SUCCESS) return {};
  for (const simdjson::dom::element item : entries) {
    const JsonValue entry(item, "");
    const auto name = entry.string("name");
    const auto body = entry.string("template");
    if (name.ok() && *name == "default" && body.ok()) report->chat_template = *body;
  }
  return {};
}

// Its type's name and one printable line.
ReportedValue reported(std::string_view key, const simdjson::dom::element& value) {
  const auto made = [&](const char* type, std::string text) {
    return ReportedValue{std::string(key), type, std::move(text)};
  };
  switch (value.type()) {
    case simdjson::dom::element_type::STRING:
      return made("string", shown(value.get_string().value_unsafe()));
    case simdjson::dom::element_type::BOOL:
      return made("boolean", value.get_bool().value_unsafe() ? "true" : "false");
    case simdjson::dom::element_type::INT64:
      return made("number", fmt::format("{}", value.get_int64().value_unsafe()));
    case simdjson::dom::element_type::UINT64:
      return made("number", fmt::format("{}", value.get_uint64().value_unsafe()));
    case simdjson::dom::element_type::DOUBLE:
      return made("number", fmt::format("{}", value.get_double().value_unsafe()));
    case simdjson::dom::element_type::NULL_VALUE:
      return made("null", "null");
    default:
      break;
  }
  std::string text = simdjson::minify(value);
  if (text.size() > kShownBytes) text = std::string(utf8_prefix(text, kShownBytes)) + "...";
  return made(value.is_array() ? "array" : "object", std::move(text));
}

Status report_config(const fs::path& folder, ModelReport* report) {
  const fs::path path = folder / "config.json";
  const auto document = read_file(path, kMaxJsonBytes);
  if (!document.ok()) {
    report->config_error = document.status().message();
    return {};
  }
  take_config(models::config_from_json(*document, path.string()), report);
  const auto object = read_object(path);
  if (!object.ok()) return object.status();
  if (!object->has_value()) return {};
  const auto model_type = (*object)->root().string("model_type");
  if (model_type.ok()) report->architecture = *model_type;
  simdjson::dom::object fields;
  if ((*object)->root().element().get(fields) != simdjson::SUCCESS) return {};
  for (const simdjson::dom::key_value_pair field : fields)
    report->metadata.push_back(reported("config." + std::string(field.key), field.value));
  return {};
}

Result<ModelReport> report_safetensors(const fs::path& path, bool folder) {
  const auto opened = weights::SafetensorsSet::open(path);
  if (!opened.ok()) return opened.status();
  ModelReport report;
  report.path = (*opened)->path();
  report.container = "safetensors";
  report.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (folder) {
    for (const Status& status : {report_config(path, &report), report_tokenizer(path, &report),
                                 report_template(path, &report)}) {
      if (!status.ok()) return status;
    }
  }
  for (const auto& [key, value] : (*opened)->metadata())
    report.metadata.push_back({"__metadata__." + key, "string", shown(value)});
  add_tensors(**opened, &report);
  add_unused(**opened, &report);
  return report;
}

}  // namespace

std::string_view utf8_prefix(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  const std::string_view cut = text.substr(0, max_bytes);
  return cut.substr(0, cut.size() - incomplete_utf8_suffix(cut));
}

Result<ModelReport> report_model(const fs::path& path) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  auto report = folder || path.extension() == ".safetensors" ? report_safetensors(path, folder)
                                                             : report_gguf(path);
  if (report.ok()) sum_formats(&*report);
  return report;
}

}  // namespace pelton::cli
