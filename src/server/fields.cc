#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quote.h"

namespace pelton::server {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string range_text(const Field& field) {
  return fmt::format("{}{}, {}]", field.low_open ? "(" : "[", field.low, field.high);
}

bool inside(const Field& field, double value) {
  if (field.low_open ? value <= field.low : value < field.low) return false;
  return value <= field.high;
}

std::optional<ApiError> read_integer(const Field& field, const JsonValue& value, int32_t* out) {
  int64_t number = 0;
  double real = 0;
  if (value.element().get(number) != simdjson::SUCCESS) {
    // 3.0 is an integer to many a client.
    const bool whole = value.element().is_double() &&
                       value.element().get(real) == simdjson::SUCCESS && std::floor(real) == real;
    if (!whole && !value.element().is_uint64())
      return invalid_field(field.name, fmt::format("{}: must be an integer", field.name));
    number = std::abs(real) < 1e15 && whole ? static_cast<int64_t>(real)
                                            : std::numeric_limits<int64_t>::max();
  }
  if (!inside(field, static_cast<double>(number))) {
    return invalid_field(field.name, fmt::format("{}: must be an integer in {}, not {}", field.name,
                                                 range_text(field), number));
  }
  *out = static_cast<int32_t>(number);
  return std::nullopt;
}

std::optional<ApiError> read_number(const Field& field, const JsonValue& value, double* out) {
  if (value.element().get(*out) != simdjson::SUCCESS)
    return invalid_field(field.name, fmt::format("{}: must be a number", field.name));
  if (!inside(field, *out)) {
    return invalid_field(field.name, fmt::format("{}: must be a number in {}, not {}", field.name,
                                                 range_text(field), *out));
  }
  return std::nullopt;
}

std::optional<ApiError> read_boolean(const Field& field, const JsonValue& value, bool* out) {
  if (value.element().get(*out) == simdjson::SUCCESS) return std::nullopt;
  return invalid_field(field.name, fmt::format("{}: must be true or false", field.name));
}

std::optional<ApiError> read_string(const Field& field, const JsonValue& value, std::string* out) {
  std::string_view text;
  if (value.element().get(text) != simdjson::SUCCESS)
    return invalid_field(field.name, fmt::format("{}: must be a string", field.name));
  if (!inside(field, static_cast<double>(text.size()))) {
    return invalid_field(field.name, fmt::format("{}: must have {} to {} bytes, not {}", field.name,
                                                 field.low, field.high, text.size()));
  }
  *out = text;
  return std::nullopt;
}

std::optional<ApiError> read_value(const Field& field, const JsonValue& value, ApiRequest& r) {
  if (field.read != nullptr) return field.read(value, r);
  using Outcome = std::optional<ApiError>;
  return std::visit(
      Overloaded{
          [](std::monostate) -> Outcome { return std::nullopt; },
          [&](bool ApiRequest::* t) { return read_boolean(field, value, &(r.*t)); },
          [&](bool SamplingParams::* t) { return read_boolean(field, value, &(r.sampling.*t)); },
          [&](int32_t ApiRequest::* t) { return read_integer(field, value, &(r.*t)); },
          [&](int32_t SamplingParams::* t) { return read_integer(field, value, &(r.sampling.*t)); },
          [&](std::optional<int32_t> ApiRequest::* t) {
            return read_integer(field, value, &(r.*t).emplace());
          },
          [&](float SamplingParams::* t) -> Outcome {
            double number = 0;
            if (auto error = read_number(field, value, &number)) return error;
            r.sampling.*t = static_cast<float>(number);
            return std::nullopt;
          },
          [&](double ApiRequest::* t) { return read_number(field, value, &(r.*t)); },
          [&](std::string ApiRequest::* t) { return read_string(field, value, &(r.*t)); },
      },
      field.target);
}

constexpr size_t kMaxKeys = 100'000;

// Of well-formed JSON; of anything else some number. Before parsing, which costs more.
size_t count_keys(std::string_view body) {
  size_t keys = 0;
  bool string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    if (string) {
      if (body[i] == '\\')
        ++i;
      else if (body[i] == '"')
        string = false;
    } else if (body[i] == '"') {
      string = true;
    } else if (body[i] == ':') {
      ++keys;
    }
  }
  return keys;
}

const Field* find_field(std::span<const Field> fields, std::string_view name) {
  for (const Field& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace

std::optional<ApiError> read_fields(std::string_view body, std::span<const Field> fields,
                                    ApiRequest* request) {
  if (count_keys(body) > kMaxKeys)
    return invalid_field("", fmt::format("the body: must have at most {} keys", kMaxKeys));
  const auto document = JsonDocument::parse(body);
  if (!document.ok()) {
    if (document.status().code() == StatusCode::kResourceExhausted)
      return from_status(document.status(), "");
    return invalid_field("", "the body: " + document.status().message());
  }
  const JsonValue root = document->root();
  simdjson::dom::object object;
  if (root.element().get(object) != simdjson::SUCCESS)
    return invalid_field("", "the body: must be a JSON object");
  if (Status s = document->refuse_duplicate_keys(); !s.ok())
    return invalid_field("", "the body: " + s.message());
  for (const simdjson::dom::key_value_pair pair : object) {
    const Field* field = find_field(fields, pair.key);
    if (field == nullptr) {
      return ApiError{.code = "unknown_field",
                      .param = std::string(pair.key.substr(0, 64)),
                      .message = fmt::format("unknown field {}", quote(pair.key, 64))};
    }
    if (pair.value.is_null()) continue;
    const JsonValue value(pair.value, std::string(field->name));
    if (auto error = read_value(*field, value, *request)) return error;
  }
  for (const Field& field : fields) {
    if (field.required && !root.get(field.name))
      return ApiError{.code = "missing_field",
                      .param = std::string(field.name),
                      .message = fmt::format("{}: is required", field.name)};
  }
  return std::nullopt;
}

}  // namespace pelton::server
