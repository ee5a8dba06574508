// The fields of every route's body, declared once: name, type, range, meaning. The same table reads
// and refuses requests and writes /openapi.json.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/api_request.h"

namespace pelton::server {

// Reads one value that is not null. `path` names it in errors.
using FieldReader = std::optional<ApiError> (*)(const JsonValue& value, ApiRequest& request);

// Where a plain value goes.
using FieldTarget =
    std::variant<std::monostate, bool ApiRequest::*, bool SamplingParams::*, int32_t ApiRequest::*,
                 int32_t SamplingParams::*, std::optional<int32_t> ApiRequest::*,
                 float SamplingParams::*, double ApiRequest::*, std::string ApiRequest::*>;

struct Field {
  std::string_view name;
  std::string_view help;
  FieldTarget target = {};  // a plain boolean, integer, number or string ...
  double low = 0;           // ... within this range, ends included; strings: bytes
  double high = 0;
  FieldReader read = nullptr;      // or one that reads itself, described by ...
  std::string_view schema = "{}";  // ... this JSON schema
  bool required = false;
  bool low_open = false;  // the low end itself is outside
};

struct Route {
  std::string_view method;
  std::string_view path;
  std::string_view summary;
  std::span<const Field> fields;  // empty for GET
};

// Fills `request` from a body. Null is as good as absent. The error names the first field that is
// unknown, missing, of a wrong type or out of range; a key that stands twice is refused.
std::optional<ApiError> read_fields(std::string_view body, std::span<const Field> fields,
                                    ApiRequest* request);

std::span<const Field> completion_fields();
std::span<const Field> chat_fields();
std::span<const Field> messages_fields();
std::span<const Field> count_tokens_fields();
std::span<const Field> embedding_fields();
std::span<const Field> tokenize_fields();
std::span<const Field> detokenize_fields();

// Every route of the server, for dispatch and for /openapi.json.
std::span<const Route> routes();
std::string openapi_document(std::string_view version);

}  // namespace pelton::server
