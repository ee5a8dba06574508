// Methods of strings, lists, tuples, dicts and loops. Those that would change their object are
// refused, as jinja2's immutable sandbox does.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

struct Call {
  Run& run;
  const Value& self;
  std::string_view name;
  Arguments& arguments;

  const Text& text() const { return self.as<Text>(); }
};
using MethodFn = Value (*)(Call&);
struct MethodEntry {
  std::string_view name;
  MethodFn function;
};

bool bind_call(Call& c, const std::vector<std::string_view>& names, size_t required,
               std::vector<Value>* bound) {
  return jinja::bind(c.run, c.name, c.arguments, names, required, bound);
}

// A text argument; none and missing give nothing.
std::optional<Text> text_argument(Call& c, const Value& value) {
  if (value.missing() || value.none()) return std::nullopt;
  if (value.string()) return value.as<Text>();
  if (!fail_if_undefined(c.run, value)) {
    c.run.fail(fmt::format("{}() argument must be str, not {}", c.name, type_name(value)));
  }
  return std::nullopt;
}

Value str_strip(Call& c, Side side) {
  std::vector<Value> a;
  if (!bind_call(c, {"chars"}, 0, &a)) return {};
  const auto chars = text_argument(c, a[0]);
  return c.run.ok() ? Value(strip(c.run, c.text(), chars, side)) : Value();
}

Value str_split(Call& c, bool from_right) {
  std::vector<Value> a;
  if (!bind_call(c, {"sep", "maxsplit"}, 0, &a)) return {};
  const auto separator = text_argument(c, a[0]);
  const int64_t limit = to_int(c.run, a[1], -1);
  if (!c.run.ok()) return {};
  return make_list(c.run, from_right ? rsplit(c.run, c.text(), separator, limit)
                                     : split(c.run, c.text(), separator, limit));
}

Value str_splitlines(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"keepends"}, 0, &a)) return {};
  return make_list(c.run, split_lines(c.run, c.text(), truth(a[0])));
}

Value str_partition(Call& c, bool from_right) {
  std::vector<Value> a;
  if (!bind_call(c, {"sep"}, 1, &a)) return {};
  const auto separator = text_argument(c, a[0]);
  if (!c.run.ok()) return {};
  if (!separator || separator->empty()) {
    c.run.fail("empty separator");
    return {};
  }
  const Text& text = c.text();
  const size_t hit = from_right ? rfind_bytes(c.run, text.view(), separator->view())
                                : find_bytes(c.run, text.view(), separator->view(), 0);
  if (hit == std::string_view::npos) {
    if (from_right) return make_tuple(c.run, {Text(), Text(), text});
    return make_tuple(c.run, {text, Text(), Text()});
  }
  return make_tuple(c.run, {substring(c.run, text, 0, hit), *separator,
                            substring(c.run, text, hit + separator->size(), text.size())});
}

Value str_replace(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"old", "new", "count"}, 2, &a)) return {};
  const auto from = text_argument(c, a[0]);
  const auto to = text_argument(c, a[1]);
  const int64_t count = to_int(c.run, a[2], -1);
  if (!from || !to || !c.run.ok()) {
    c.run.fail("replace() arguments must be str");
    return {};
  }
  return replace(c.run, c.text(), *from, *to, count);
}

// The characters [start, end) of the text that a search looks at, as byte offsets.
struct Window {
  size_t begin;
  size_t end;
  bool valid;
};
Window window(Call& c, const Value& start, const Value& end) {
  SliceBounds bounds;
  if (!start.missing() && !start.none()) bounds.start = to_int(c.run, start, 0);
  if (!end.missing() && !end.none()) bounds.stop = to_int(c.run, end, 0);
  if (!bounds.start && !bounds.stop) return {0, c.text().size(), true};
  c.run.scan(c.text().size());
  const auto size = static_cast<int64_t>(c.text().length());
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t from = clamp(bounds.start.value_or(0));
  const int64_t to = clamp(bounds.stop.value_or(size));
  if (bounds.start && *bounds.start > size) return {0, 0, false};
  if (from > to) return {0, 0, false};
  return {c.text().offset(static_cast<size_t>(from)), c.text().offset(static_cast<size_t>(to)),
          true};
}

Value str_affix(Call& c, bool start) {
  std::vector<Value> a;
  if (!bind_call(c, {start ? "prefix" : "suffix", "start", "end"}, 1, &a)) return {};
  const Window part = window(c, a[1], a[2]);
  if (!c.run.ok()) return {};
  if (!part.valid) return false;
  const std::string_view text = c.text().view().substr(part.begin, part.end - part.begin);
  std::vector<Value> choices;
  if (a[0].is<Tuple>()) {
    choices = *a[0].items();
  } else {
    choices.push_back(a[0]);
  }
  for (const Value& choice : choices) {
    const auto affix = text_argument(c, choice);
    if (!affix) {
      c.run.fail(fmt::format("{}() first arg must be str or a tuple of str", c.name));
      return {};
    }
    if (!c.run.scan(affix->size())) return {};
    if (start ? text.starts_with(affix->view()) : text.ends_with(affix->view())) return true;
  }
  return false;
}

Value str_remove_affix(Call& c, bool start) {
  std::vector<Value> a;
  if (!bind_call(c, {"affix"}, 1, &a)) return {};
  const auto affix = text_argument(c, a[0]);
  if (!affix) {
    c.run.fail(fmt::format("{}() argument must be str", c.name));
    return {};
  }
  const Text& text = c.text();
  if (affix->empty()) return text;
  if (start && text.view().starts_with(affix->view())) {
    return substring(c.run, text, affix->size(), text.size());
  }
  if (!start && text.view().ends_with(affix->view())) {
    return substring(c.run, text, 0, text.size() - affix->size());
  }
  return text;
}

// find, rfind, index, rindex.
Value str_find(Call& c, bool from_right, bool required) {
  std::vector<Value> a;
  if (!bind_call(c, {"sub", "start", "end"}, 1, &a)) return {};
  const auto needle = text_argument(c, a[0]);
  const Window part = window(c, a[1], a[2]);
  if (!needle || !c.run.ok()) {
    c.run.fail(fmt::format("{}() argument must be str", c.name));
    return {};
  }
  const std::string_view text = c.text().view().substr(0, part.end);
  size_t hit = std::string_view::npos;
  if (part.valid && from_right) {
    hit = rfind_bytes(c.run, text.substr(part.begin), needle->view());
    if (hit != std::string_view::npos) hit += part.begin;
  } else if (part.valid) {
    hit = find_bytes(c.run, text, needle->view(), part.begin);
  }
  if (hit != std::string_view::npos) {
    return static_cast<int64_t>(Text(std::string(text.substr(0, hit))).length());
  }
  if (required) c.run.fail("substring not found");
  return int64_t{-1};
}

Value str_count(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"sub", "start", "end"}, 1, &a)) return {};
  const auto needle = text_argument(c, a[0]);
  const Window part = window(c, a[1], a[2]);
  if (!needle || !c.run.ok()) {
    c.run.fail("count() argument must be str");
    return {};
  }
  if (!part.valid) return int64_t{0};
  if (needle->empty()) {
    return static_cast<int64_t>(substring(c.run, c.text(), part.begin, part.end).length() + 1);
  }
  const std::string_view text = c.text().view().substr(0, part.end);
  int64_t count = 0;
  size_t at = part.begin;
  while (c.run.ok()) {
    const size_t hit = find_bytes(c.run, text, needle->view(), at);
    if (hit == std::string_view::npos) break;
    ++count;
    at = hit + needle->size();
  }
  return count;
}

Value str_join(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"iterable"}, 1, &a)) return {};
  const auto items = iterate(c.run, a[0]);
  if (!items) return {};
  TextBuilder out(c.run);
  for (size_t i = 0; i < items->items.size() && c.run.ok(); ++i) {
    if (i > 0) out.append(c.text());
    const auto part = text_argument(c, items->items[i]);
    if (!part) {
      c.run.fail(fmt::format("sequence item {}: expected str instance, {} found", i,
                             type_name(items->items[i])));
      return {};
    }
    out.append(*part);
  }
  return out.take();
}

Value str_pad(Call& c, Side side) {
  std::vector<Value> a;
  if (!bind_call(c, {"width", "fillchar"}, 1, &a)) return {};
  const auto fill = text_argument(c, a[1]);
  const int64_t width = to_int(c.run, a[0], 0);
  if (!c.run.ok()) return {};
  return pad(c.run, c.text(), width, fill.value_or(Text(" ")), side);
}

Value str_zfill(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"width"}, 1, &a)) return {};
  return zfill(c.run, c.text(), to_int(c.run, a[0], 0));
}

// isdigit and its kin: true when there is a character and all satisfy the property.
Value str_all(Call& c, bool (*property)(uint32_t)) {
  const std::string_view text = c.text().view();
  if (!c.run.spend(static_cast<int64_t>(text.size() / 16))) return {};
  size_t at = 0;
  uint32_t code = 0;
  while (at < text.size()) {
    decode_utf8(text, &at, &code);
    if (!property(code)) return false;
  }
  return !text.empty();
}

// islower, isupper: some cased character, and none of the other case.
Value str_cased(Call& c, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  const std::string_view text = c.text().view();
  if (!c.run.spend(static_cast<int64_t>(text.size() / 16))) return {};
  size_t at = 0;
  uint32_t code = 0;
  bool any = false;
  while (at < text.size()) {
    decode_utf8(text, &at, &code);
    if (other(code)) return false;
    any |= wanted(code);
  }
  return any;
}

bool is_alnum(uint32_t code) { return is_alpha(code) || is_numeric(code) || is_digit(code); }
bool is_ascii_code(uint32_t code) { return code < 0x80; }

constexpr MethodEntry kTextMethods[] = {
    {"strip", [](Call& c) { return str_strip(c, Side::kBoth); }},
    {"lstrip", [](Call& c) { return str_strip(c, Side::kLeft); }},
    {"rstrip", [](Call& c) { return str_strip(c, Side::kRight); }},
    {"split", [](Call& c) { return str_split(c, false); }},
    {"rsplit", [](Call& c) { return str_split(c, true); }},
    {"splitlines", str_splitlines},
    {"partition", [](Call& c) { return str_partition(c, false); }},
    {"rpartition", [](Call& c) { return str_partition(c, true); }},
    {"upper", [](Call& c) { return Value(change_case(c.run, c.text(), Case::kUpper)); }},
    {"lower", [](Call& c) { return Value(change_case(c.run, c.text(), Case::kLower)); }},
    {"title", [](Call& c) { return Value(title(c.run, c.text())); }},
    {"capitalize", [](Call& c) { return Value(capitalize(c.run, c.text())); }},
    {"swapcase", [](Call& c) { return Value(swapcase(c.run, c.text())); }},
    {"replace", str_replace},
    {"startswith", [](Call& c) { return str_affix(c, true); }},
    {"endswith", [](Call& c) { return str_affix(c, false); }},
    {"removeprefix", [](Call& c) { return str_remove_affix(c, true); }},
    {"removesuffix", [](Call& c) { return str_remove_affix(c, false); }},
    {"find", [](Call& c) { return str_find(c, false, false); }},
    {"rfind", [](Call& c) { return str_find(c, true, false); }},
    {"index", [](Call& c) { return str_find(c, false, true); }},
    {"rindex", [](Call& c) { return str_find(c, true, true); }},
    {"count", str_count},
    {"join", str_join},
    {"format",
     [](Call& c) {
       return Value(brace_format(c.run, c.text(), c.arguments.positional, c.arguments.named));
     }},
    {"center", [](Call& c) { return str_pad(c, Side::kBoth); }},
    {"ljust", [](Call& c) { return str_pad(c, Side::kLeft); }},
    {"rjust", [](Call& c) { return str_pad(c, Side::kRight); }},
    {"zfill", str_zfill},
    {"isdigit", [](Call& c) { return str_all(c, is_digit); }},
    {"isdecimal", [](Call& c) { return str_all(c, is_decimal); }},
    {"isnumeric", [](Call& c) { return str_all(c, is_numeric); }},
    {"isalpha", [](Call& c) { return str_all(c, is_alpha); }},
    {"isalnum", [](Call& c) { return str_all(c, is_alnum); }},
    {"isspace", [](Call& c) { return str_all(c, is_space); }},
    {"isascii", [](Call& c) { return c.text().empty() ? Value(true) : str_all(c, is_ascii_code); }},
    {"islower", [](Call& c) { return str_cased(c, is_lower, is_upper); }},
    {"isupper", [](Call& c) { return str_cased(c, is_upper, is_lower); }},
};

std::vector<Value> dict_entries(Call& c, bool keys, bool values) {
  const auto& entries = c.self.as<Dict>().data->entries;
  std::vector<Value> out;
  if (!c.run.spend(static_cast<int64_t>(entries.size()))) return out;
  for (const auto& [key, value] : entries) {
    out.push_back(keys && values ? make_tuple(c.run, {key, value}) : keys ? key : value);
  }
  return out;
}

Value dict_get(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"key", "default"}, 1, &a)) return {};
  if (!hashable(a[0])) {
    c.run.fail(fmt::format("unhashable type: '{}'", type_name(a[0])));
    return {};
  }
  if (const Value* found = find(c.run, *c.self.as<Dict>().data, a[0])) return *found;
  return a[1].missing() ? Value(None{}) : a[1];
}

constexpr MethodEntry kDictMethods[] = {
    {"get", dict_get},
    {"items", [](Call& c) { return make_view(c.run, dict_entries(c, true, true), "dict_items"); }},
    {"keys", [](Call& c) { return make_view(c.run, dict_entries(c, true, false), "dict_keys"); }},
    {"values",
     [](Call& c) { return make_view(c.run, dict_entries(c, false, true), "dict_values"); }},
    {"copy", [](Call& c) { return c.self; }},
};

Value list_count(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"value"}, 1, &a)) return {};
  return static_cast<int64_t>(
      std::count_if(c.self.items()->begin(), c.self.items()->end(),
                    [&](const Value& item) { return equal(c.run, item, a[0]); }));
}

Value list_index(Call& c) {
  std::vector<Value> a;
  if (!bind_call(c, {"value"}, 1, &a)) return {};
  const auto& items = *c.self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(c.run, items[i], a[0])) return static_cast<int64_t>(i);
  }
  c.run.fail("the value is not in the list");
  return {};
}

constexpr MethodEntry kListMethods[] = {
    {"count", list_count},
    {"index", list_index},
    {"copy", [](Call& c) { return c.self; }},
};

Value loop_cycle(Call& c) {
  const auto& values = c.arguments.positional;
  if (values.empty()) {
    c.run.fail("no items for cycling given");
    return {};
  }
  return values[c.self.as<Loop>().state->index % values.size()];
}

Value loop_changed(Call& c) {
  LoopState& state = *c.self.as<Loop>().state;
  const auto& now = c.arguments.positional;
  bool same = state.changed_called && state.last_changed.size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i)
    same = equal(c.run, state.last_changed[i], now[i]);
  state.changed_called = true;
  if (!same) state.last_changed = now;
  return !same;
}

constexpr MethodEntry kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

std::span<const MethodEntry> methods_of(const Value& self) {
  if (self.string()) return kTextMethods;
  if (self.is<Dict>()) return kDictMethods;
  if (self.items() != nullptr) return kListMethods;
  if (self.is<Loop>()) return kLoopMethods;
  return {};
}

bool changes_object(const Value& self, std::string_view name) {
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                        "insert", "sort",  "extend", "remove"};
  const auto has = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return (self.is<Dict>() && has(kDict)) || (self.is<List>() && has(kList));
}

}  // namespace

bool unsupported_method(std::string_view name) {
  constexpr std::string_view kNames[] = {"encode",     "translate",   "maketrans",
                                         "format_map", "expandtabs",  "casefold",
                                         "istitle",    "isprintable", "isidentifier"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value find_method(Run& run, const Value& self, std::string_view name) {
  for (const MethodEntry& entry : methods_of(self)) {
    if (entry.name != name) continue;
    if (!run.hold(sizeof(MethodData))) return {};
    return Method{
        std::make_shared<const MethodData>(MethodData{self, std::string(name), self.depth() + 1})};
  }
  if (changes_object(self, name)) {
    return make_undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(self)));
  }
  return {};
}

Value call_method(Interpreter& interpreter, const MethodData& method, Arguments& arguments) {
  Call call{interpreter.run(), method.self, method.name, arguments};
  for (const MethodEntry& entry : methods_of(method.self)) {
    if (entry.name == method.name) return entry.function(call);
  }
  return {};
}

}  // namespace pelton::text::jinja
