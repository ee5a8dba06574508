#include "text/jinja/from_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace pelton::text::jinja {
namespace {

// A template may build control tokens from a role ("<|" + role + "|>"), so the known ones count as
// its own text.
bool known_role(std::string_view text) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user",    "assistant",
                                         "tool",   "function",  "ipython", "model"};
  return std::find(std::begin(kRoles), std::end(kRoles), text) != std::end(kRoles);
}

class Converter {
 public:
  explicit Converter(Run& run) : run_(run) {}

  Value convert(const Json& json, bool trusted, int depth) {
    if (depth > kMaxValueDepth) run_.fail_plain("the messages are nested too deep");
    if (!run_.spend(1)) return {};
    if (json.is_null()) return None{};
    if (json.is_boolean()) return json.as_bool();
    if (json.is_number_unsigned()) return convert_unsigned(json.as_unsigned());
    if (json.is_number_integer()) return json.as_integer();
    if (json.is_number_float()) return json.as_double();
    if (json.is_string()) return convert_text(json.as_string(), trusted);
    return json.is_array() ? convert_array(json, depth) : convert_object(json, depth);
  }

 private:
  static Value convert_unsigned(uint64_t number) {
    if (number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(number);
    return static_cast<double>(number);
  }

  Value convert_text(const std::string& text, bool trusted) {
    if (!is_valid_utf8(text)) {
      run_.fail_plain("the messages hold text that is not valid UTF-8");
      return {};
    }
    return Text(text, !trusted);
  }

  Value convert_array(const Json& json, int depth) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json.elements()) {
      items.push_back(convert(item, false, depth + 1));
      if (!run_.ok()) return {};
    }
    return make_list(run_, std::move(items));
  }

  Value convert_object(const Json& json, int depth) {
    DictBuilder builder(run_);
    for (const auto& [key, item] : json.items()) {
      const bool role = key == "role" && item.is_string() && known_role(item.as_string());
      const Value name = convert_text(key, false);
      builder.set(name, convert(item, role, depth + 1));
      if (!run_.ok()) return {};
    }
    return builder.take();
  }

  Run& run_;
};

}  // namespace

std::vector<std::pair<std::string, Value>> globals_from_json(Run& run, const Json& context) {
  std::vector<std::pair<std::string, Value>> globals;
  if (!context.is_object()) {
    run.fail_plain("the context of a chat template must be an object");
    return globals;
  }
  Converter converter(run);
  for (const auto& [name, value] : context.items()) {
    globals.emplace_back(name, converter.convert(value, name.ends_with("_token"), 1));
  }
  return globals;
}

}  // namespace pelton::text::jinja
