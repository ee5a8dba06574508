#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quote.h"

namespace pelton {

std::string JsonValue::child(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Status JsonValue::error(std::string_view what) const {
  return data_loss(path_.empty() ? std::string(what) : fmt::format("{}: {}", path_, what));
}

Status JsonValue::error_at(std::string_view key, std::string_view what) const {
  return data_loss(fmt::format("{}: {}", child(key), what));
}

std::optional<JsonValue> JsonValue::get(std::string_view key) const {
  simdjson::dom::object object;
  simdjson::dom::element value;
  if (element_.get(object) != simdjson::SUCCESS) return std::nullopt;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return JsonValue(value, child(key));
}

Result<std::string_view> JsonValue::string(std::string_view key) const {
  const auto value = get(key);
  std::string_view text;
  if (!value || value->element_.get(text) != simdjson::SUCCESS) {
    return error_at(key, "expected a string");
  }
  return text;
}

Result<int64_t> JsonValue::integer(std::string_view key) const {
  const auto value = get(key);
  int64_t number = 0;
  if (!value || value->element_.get(number) != simdjson::SUCCESS) {
    return error_at(key, "expected an integer");
  }
  return number;
}

Result<bool> JsonValue::boolean(std::string_view key, bool fallback) const {
  const auto value = get(key);
  if (!value) return fallback;
  bool flag = false;
  if (value->element_.get(flag) != simdjson::SUCCESS) {
    return error_at(key, "expected true or false");
  }
  return flag;
}

Result<std::string> JsonValue::string_or(std::string_view key, std::string_view fallback) const {
  if (!get(key)) return std::string(fallback);
  auto text = string(key);
  if (!text.ok()) return text.status();
  return std::string(*text);
}

Result<std::vector<JsonValue>> JsonValue::items(std::string_view key) const {
  const auto value = get(key);
  simdjson::dom::array array;
  if (!value || value->element_.get(array) != simdjson::SUCCESS) {
    return error_at(key, "expected an array");
  }
  std::vector<JsonValue> out;
  for (const simdjson::dom::element item : array) {
    out.emplace_back(item, fmt::format("{}[{}]", value->path_, out.size()));
  }
  return out;
}

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  if (text.size() > kMaxJsonBytes) return data_loss("larger than 256 MiB");
  JsonDocument document;
  auto error = document.parser_->allocate(text.size() + 64, kMaxJsonDepth);
  if (error == simdjson::SUCCESS) {
    error = document.parser_->parse(text.data(), text.size()).get(document.root_);
  }
  if (error == simdjson::MEMALLOC) return resource_exhausted("no memory to read JSON");
  if (error == simdjson::DEPTH_ERROR)
    return data_loss(fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth));
  if (error != simdjson::SUCCESS) {
    return data_loss(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  }
  return document;
}

Status JsonDocument::refuse_duplicate_keys() const {
  std::vector<simdjson::dom::element> open = {root_};
  std::vector<std::string_view> keys;
  while (!open.empty()) {
    const simdjson::dom::element value = open.back();
    open.pop_back();
    simdjson::dom::array array;
    simdjson::dom::object object;
    if (value.get(array) == simdjson::SUCCESS) {
      for (const simdjson::dom::element item : array) open.push_back(item);
    } else if (value.get(object) == simdjson::SUCCESS) {
      keys.clear();
      for (const simdjson::dom::key_value_pair field : object) {
        keys.push_back(field.key);
        open.push_back(field.value);
      }
      std::sort(keys.begin(), keys.end());
      const auto twice = std::adjacent_find(keys.begin(), keys.end());
      if (twice != keys.end())
        return data_loss(fmt::format("the key {} stands twice", quote(*twice)));
    }
  }
  return {};
}

}  // namespace pelton
