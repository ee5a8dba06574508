#include "server/field_readers.h"

#include <fmt/format.h>

#include <charconv>

#include "base/quote.h"

namespace pelton::server {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxStopTokenIds = 256;
constexpr size_t kMaxPrompts = 128;

using Outcome = std::optional<ApiError>;

Outcome bad(const JsonValue& value, std::string_view what) {
  const std::string& path = value.path();
  return invalid_field(path, fmt::format("{}: {}", path, what));
}

std::vector<JsonValue> elements(const JsonValue& value) {
  std::vector<JsonValue> out;
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return out;
  for (const simdjson::dom::element item : array)
    out.emplace_back(item, fmt::format("{}[{}]", value.path(), out.size()));
  return out;
}

// A token id by form; the engine checks it against the vocabulary.
bool is_token_id(const JsonValue& value, int32_t* id) {
  int64_t number = 0;
  if (value.element().get(number) != simdjson::SUCCESS) return false;
  if (number < 0 || number > std::numeric_limits<int32_t>::max()) return false;
  *id = static_cast<int32_t>(number);
  return true;
}

Outcome read_ids(const JsonValue& value, std::vector<int32_t>* ids) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return bad(value, "must be a list");
  ids->reserve(array.size());
  for (const simdjson::dom::element item : array) {
    int32_t id = 0;
    if (!is_token_id(JsonValue(item, {}), &id))
      return bad(value, fmt::format("entry {} is not a token id", ids->size()));
    ids->push_back(id);
  }
  return std::nullopt;
}

Outcome read_one_prompt(const JsonValue& value, ApiRequest& request) {
  std::string_view text;
  if (value.element().get(text) == simdjson::SUCCESS) {
    request.prompts.emplace_back(std::string(text));
    return std::nullopt;
  }
  if (!value.is_array()) return bad(value, "must be a string or a list of token ids");
  std::vector<int32_t> ids;
  if (auto error = read_ids(value, &ids)) return error;
  if (ids.empty()) return bad(value, "must not be empty");
  request.prompts.emplace_back(std::move(ids));
  return std::nullopt;
}

}  // namespace

Outcome read_prompt(const JsonValue& value, ApiRequest& request) {
  if (!value.is_array()) return read_one_prompt(value, request);
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS || array.size() == 0)
    return bad(value, "must not be empty");
  if (array.at(0).is_int64() || array.at(0).is_uint64()) return read_one_prompt(value, request);
  if (array.size() > kMaxPrompts)
    return bad(value, fmt::format("must hold at most {} prompts", kMaxPrompts));
  for (const JsonValue& item : elements(value)) {
    if (auto error = read_one_prompt(item, request)) return error;
  }
  return std::nullopt;
}

Outcome read_stop(const JsonValue& value, ApiRequest& request) {
  std::vector<JsonValue> items = elements(value);
  if (value.is_string()) items.push_back(value);
  if (!value.is_string() && !value.is_array())
    return bad(value, "must be a string or a list of strings");
  if (items.size() > kMaxStops)
    return bad(value, fmt::format("must have at most {} entries, not {}", kMaxStops, items.size()));
  for (const JsonValue& item : items) {
    std::string_view text;
    if (item.element().get(text) != simdjson::SUCCESS) return bad(item, "must be a string");
    if (text.empty()) return bad(item, "must not be empty");
    if (text.size() > kMaxStopBytes)
      return bad(item,
                 fmt::format("must have at most {} bytes, not {}", kMaxStopBytes, text.size()));
    request.sampling.stop.emplace_back(text);
  }
  return std::nullopt;
}

Outcome read_stop_token_ids(const JsonValue& value, ApiRequest& request) {
  if (auto error = read_ids(value, &request.sampling.stop_token_ids)) return error;
  if (request.sampling.stop_token_ids.size() > kMaxStopTokenIds)
    return bad(value, fmt::format("must have at most {} entries", kMaxStopTokenIds));
  return std::nullopt;
}

Outcome read_logit_bias(const JsonValue& value, ApiRequest& request) {
  simdjson::dom::object object;
  if (value.element().get(object) != simdjson::SUCCESS)
    return bad(value, "must be an object of token ids and numbers");
  if (object.size() > kMaxBiases)
    return bad(value, fmt::format("must have at most {} entries", kMaxBiases));
  for (const simdjson::dom::key_value_pair pair : object) {
    int32_t id = 0;
    const char* end = pair.key.data() + pair.key.size();
    const auto [stop, error] = std::from_chars(pair.key.data(), end, id);
    if (error != std::errc() || stop != end || id < 0)
      return bad(value, fmt::format("the key {} is not a token id", quote(pair.key, 32)));
    double bias = 0;
    if (pair.value.get(bias) != simdjson::SUCCESS || !(bias >= -100 && bias <= 100))
      return bad(value, fmt::format("the bias of {} must be a number in [-100, 100]", id));
    request.sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  return std::nullopt;
}

Outcome read_seed(const JsonValue& value, ApiRequest& request) {
  int64_t number = 0;
  uint64_t large = 0;
  if (value.element().get(number) == simdjson::SUCCESS) {
    request.sampling.seed = static_cast<uint64_t>(number);
  } else if (value.element().get(large) == simdjson::SUCCESS) {
    request.sampling.seed = large;
  } else {
    return bad(value, "must be an integer of 64 bits");
  }
  return std::nullopt;
}

Outcome read_stream_options(const JsonValue& value, ApiRequest& request) {
  simdjson::dom::object object;
  if (value.element().get(object) != simdjson::SUCCESS) return bad(value, "must be an object");
  for (const simdjson::dom::key_value_pair pair : object) {
    if (pair.value.is_null()) continue;
    bool flag = false;
    if (pair.value.get(flag) != simdjson::SUCCESS)
      return bad(value, fmt::format("{} must be true or false", quote(pair.key, 64)));
    if (pair.key == "include_usage") {
      request.include_usage = flag;
    } else if (pair.key == "include_obfuscation" || pair.key == "continuous_usage_stats") {
      if (flag)
        return unsupported_field("stream_options",
                                 fmt::format("stream_options: {} is not supported", pair.key));
    } else {
      return bad(value, fmt::format("unknown field {}", quote(pair.key, 64)));
    }
  }
  return std::nullopt;
}

Outcome read_response_format(const JsonValue& value, ApiRequest&) {
  const auto type = value.string("type");
  if (!type.ok()) return bad(value, "must be an object with a type");
  if (*type == "text") return std::nullopt;
  return unsupported_field(
      "response_format",
      "response_format: only {\"type\": \"text\"} is supported: this server does "
      "not constrain output yet");
}

Outcome read_template_kwargs(const JsonValue& value, ApiRequest& request) {
  if (!value.is_object()) return bad(value, "must be an object");
  request.template_kwargs = to_ordered_json(value);
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token",
                           "unk_token", "pad_token", "chat_template"}) {
    if (request.template_kwargs.contains(name))
      return bad(value, fmt::format("must not set {}", name));
  }
  return std::nullopt;
}

Outcome read_tokens(const JsonValue& value, ApiRequest& request) {
  return read_ids(value, &request.tokens);
}

Outcome read_modalities(const JsonValue& value, ApiRequest&) {
  for (const JsonValue& item : elements(value)) {
    std::string_view text;
    if (item.element().get(text) != simdjson::SUCCESS || text != "text")
      return unsupported_field("modalities", "modalities: only text is supported");
  }
  if (!value.is_array()) return bad(value, "must be a list");
  return std::nullopt;
}

Outcome refuse_value(const JsonValue& value, ApiRequest&) {
  return unsupported_field(value.path(),
                           fmt::format("{}: is not supported by this server", value.path()));
}

Outcome refuse_if_set(const JsonValue& value, ApiRequest& request) {
  bool flag = false;
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.element().get(flag) == simdjson::SUCCESS && !flag) return std::nullopt;
  if (value.element().get(array) == simdjson::SUCCESS && array.size() == 0) return std::nullopt;
  if (value.element().get(object) == simdjson::SUCCESS && object.size() == 0) return std::nullopt;
  return refuse_value(value, request);
}

Outcome ignore_value(const JsonValue&, ApiRequest&) { return std::nullopt; }

Json to_ordered_json(const JsonValue& value) {
  const simdjson::dom::element& element = value.element();
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (element.get(array) == simdjson::SUCCESS) {
    Json out = Json::array();
    for (const simdjson::dom::element item : array)
      out.push_back(to_ordered_json(JsonValue(item, {})));
    return out;
  }
  if (element.get(object) == simdjson::SUCCESS) {
    Json out = Json::object();
    // Keys stand once; appending them keeps this linear.
    auto& entries = out.items();
    for (const simdjson::dom::key_value_pair pair : object)
      entries.emplace_back(std::string(pair.key), to_ordered_json(JsonValue(pair.value, {})));
    return out;
  }
  std::string_view text;
  int64_t integer = 0;
  uint64_t large = 0;
  double number = 0;
  bool flag = false;
  if (element.get(text) == simdjson::SUCCESS) return std::string(text);
  if (element.get(flag) == simdjson::SUCCESS) return flag;
  if (element.get(integer) == simdjson::SUCCESS) return integer;
  if (element.get(large) == simdjson::SUCCESS) return large;
  if (element.get(number) == simdjson::SUCCESS) return number;
  return nullptr;
}

}  // namespace pelton::server
