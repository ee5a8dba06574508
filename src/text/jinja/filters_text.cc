// Filters over one value: texts and numbers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

Value filter_trim(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "trim", arguments, {"chars"}, 0, &a)) return {};
  std::optional<Text> chars;
  if (a[0].string()) chars = a[0].as<Text>();
  return strip(in.run(), to_text(in.run(), input), chars, Side::kBoth);
}

template <Text (*function)(Run&, const Text&)>
Value filter_text(Interpreter& in, const Value& input, Arguments&) {
  return function(in.run(), to_text(in.run(), input));
}

Text identity(Run&, const Text& text) { return text; }
Text upper(Run& run, const Text& text) { return change_case(run, text, Case::kUpper); }
Text lower(Run& run, const Text& text) { return change_case(run, text, Case::kLower); }

Text mark_safe(Run&, const Text& text) { return text.as_markup(); }

// Runs of letters, digits and underscores: "don't" is two.
Value filter_wordcount(Interpreter& in, const Value& input, Arguments&) {
  const Text counted = to_text(in.run(), input);
  const std::string_view text = counted.view();
  if (!in.run().spend(static_cast<int64_t>(text.size() / 16))) return {};
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    decode_utf8(text, &at, &code);
    const bool of_word = is_alpha(code) || is_numeric(code) || is_digit(code) || code == '_';
    words += of_word && !in_word ? 1 : 0;
    in_word = of_word;
  }
  return words;
}

Value filter_replace(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "replace", arguments, {"old", "new", "count"}, 2, &a)) return {};
  const int64_t count = a[2].none() ? -1 : to_int(in.run(), a[2], -1);
  return replace(in.run(), to_text(in.run(), input), to_text(in.run(), a[0]),
                 to_text(in.run(), a[1]), count);
}

Value filter_indent(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "indent", arguments, {"width", "first", "blank"}, 0, &a)) return {};
  if (!input.string()) {
    if (!fail_if_undefined(run, input)) run.fail("indent needs a string");
    return {};
  }
  const Text indent = a[0].string() ? a[0].as<Text>()
                                    : to_text(run, multiply(run, Text(" "), to_int(run, a[0], 4)));
  // A line end is added first, so that a final line end gives one more, empty line.
  std::vector<Value> lines = split_lines(run, to_text(run, add(run, input, Text("\n"))), false);
  if (!run.ok()) return {};
  TextBuilder out(run);
  for (size_t i = 0; i < lines.size() && run.ok(); ++i) {
    const Text& line = lines[i].as<Text>();
    if (i > 0) out.append("\n");
    if (i == 0 ? truth(a[1]) : (truth(a[2]) || !line.empty())) out.append(indent);
    out.append(line);
  }
  return out.take();
}

Value filter_center(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "center", arguments, {"width"}, 0, &a)) return {};
  return pad(in.run(), to_text(in.run(), input), to_int(in.run(), a[0], 80), Text(" "),
             Side::kBoth);
}

Value filter_truncate(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "truncate", arguments, {"length", "killwords", "end", "leeway"}, 0, &a))
    return {};
  const Text text = to_text(run, input);
  const Text end = a[2].missing() ? Text("...") : to_text(run, a[2]);
  const int64_t length = to_int(run, a[0], 255);
  const int64_t leeway = a[3].none() ? 5 : to_int(run, a[3], 5);
  const auto end_length = static_cast<int64_t>(end.length());
  if (run.ok() && (length < end_length || leeway < 0)) run.fail("truncate: bad length or leeway");
  if (!run.ok() || static_cast<int64_t>(text.length()) <= length + leeway) return text;
  Text kept = slice_text(run, text, {0, length - end_length, 1});
  if (!truth(a[1])) {
    const size_t space = kept.view().rfind(' ');
    if (space != std::string_view::npos) kept = substring(run, kept, 0, space);
  }
  return add(run, kept, end);
}

Value filter_format(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    run.fail("can't handle positional and keyword arguments at the same time");
    return {};
  }
  Value values;
  if (arguments.named.empty()) {
    values = make_tuple(run, arguments.positional);
  } else {
    DictBuilder builder(run);
    for (const auto& [name, value] : arguments.named) builder.set(Text(name), value);
    values = builder.take();
  }
  return percent_format(run, to_text(run, input), values);
}

Value filter_tojson(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"},
                   0, &a)) {
    return {};
  }
  JsonStyle style;
  style.ensure_ascii = truth(a[0]);
  style.sort_keys = truth(a[3]);
  if (!a[1].missing() && !a[1].none()) {
    style.indented = true;
    style.item_separator = ",";
    const Value indent = a[1].string() ? a[1] : multiply(run, Text(" "), to_int(run, a[1], 0));
    if (!run.ok()) return {};
    style.indent = indent.as<Text>().view();
  }
  if (!a[2].missing() && !a[2].none()) {
    const auto* pair = a[2].items();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].string() || !(*pair)[1].string()) {
      run.fail("tojson: separators must be two strings");
      return {};
    }
    style.item_separator = (*pair)[0].as<Text>().view();
    style.key_separator = (*pair)[1].as<Text>().view();
  }
  TextBuilder out(run);
  append_json(out, input, style);
  return out.take();
}

std::string plain_number(const Text& text) {
  std::string digits;
  size_t begin = 0;
  size_t end = text.size();
  const std::string_view view = text.view();
  while (begin < end && is_space(static_cast<unsigned char>(view[begin]))) ++begin;
  while (end > begin && is_space(static_cast<unsigned char>(view[end - 1]))) --end;
  for (char c : view.substr(begin, std::min<size_t>(end - begin, 400))) {
    if (c != '_') digits += c;
  }
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  return digits;
}

std::optional<double> parse_float(const Text& text) {
  const std::string digits = plain_number(text);
  double value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(const Text& text, int base) {
  std::string digits = plain_number(text);
  const bool negative = !digits.empty() && digits[0] == '-';
  if (negative) digits.erase(0, 1);
  const auto prefixed = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  if ((base == 16 && prefixed('x')) || (base == 8 && prefixed('o')) ||
      (base == 2 && prefixed('b'))) {
    digits.erase(0, 2);
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<int64_t> truncated(double value) {
  if (!(value > -9.2e18 && value < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value filter_int(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "int", arguments, {"default", "base"}, 0, &a)) return {};
  const Value fallback = a[0].missing() ? Value(int64_t{0}) : a[0];
  const int64_t base = to_int(in.run(), a[1], 10);
  if (fail_if_undefined(in.run(), input) || !in.run().ok()) return {};
  if (base < 2 || base > 36) return fallback;
  if (const auto i = input.integer()) return *i;
  std::optional<double> number = input.number();
  if (const auto* text = input.get_if<Text>()) {
    if (const auto i = parse_int(*text, static_cast<int>(base))) return *i;
    number = parse_float(*text);
  }
  const auto whole = number ? truncated(*number) : std::nullopt;
  return whole ? Value(*whole) : fallback;
}

Value filter_float(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "float", arguments, {"default"}, 0, &a)) return {};
  if (fail_if_undefined(in.run(), input)) return {};
  if (const auto number = input.number()) return *number;
  if (const auto* text = input.get_if<Text>()) {
    if (const auto number = parse_float(*text)) return *number;
  }
  return a[0].missing() ? Value(0.0) : a[0];
}

Value filter_abs(Interpreter& in, const Value& input, Arguments&) {
  if (fail_if_undefined(in.run(), input)) return {};
  if (const auto i = input.integer()) {
    return *i >= 0 ? Value(*i) : multiply(in.run(), *i, int64_t{-1});
  }
  if (const auto d = input.number()) return std::fabs(*d);
  in.run().fail(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  return {};
}

// Decimal rounding of the exact binary value, halves to even.
double round_common(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, std::min<int64_t>(precision, 320));
    double out = value;
    std::from_chars(text.data(), text.data() + text.size(), out);
    return out;
  }
  const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(-precision, 320)));
  return std::nearbyint(value / scale) * scale;
}

Value filter_round(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "round", arguments, {"precision", "method"}, 0, &a)) return {};
  const int64_t precision = std::clamp<int64_t>(to_int(run, a[0], 0), -400, 400);
  const std::string method = a[1].missing() ? "common" : std::string(to_text(run, a[1]).view());
  if (fail_if_undefined(run, input) || !run.ok()) return {};
  const auto number = input.number();
  if (!number) {
    run.fail(fmt::format("type {} doesn't define __round__ method", type_name(input)));
    return {};
  }
  if (method == "common") {
    if (input.integer() && precision >= 0) return *input.integer();
    const double rounded = round_common(*number, precision);
    return input.integer() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  if (method != "ceil" && method != "floor") {
    run.fail("method must be common, ceil or floor");
    return {};
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale;
}

Value filter_default(Interpreter& in, const Value& input, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "default", arguments, {"default_value", "boolean"}, 0, &a)) return {};
  if (!input.undefined() && !(truth(a[1]) && !truth(input))) return input;
  return a[0].missing() ? Value(Text()) : a[0];
}

Value filter_length(Interpreter& in, const Value& input, Arguments&) {
  const auto size = length(in.run(), input);
  return size ? Value(*size) : Value();
}

constexpr FilterEntry kFilters[] = {
    {"trim", filter_trim},
    {"upper", filter_text<upper>},
    {"lower", filter_text<lower>},
    {"title", filter_text<title_words>},
    {"capitalize", filter_text<capitalize>},
    {"string", filter_text<identity>},
    {"safe", filter_text<mark_safe>},
    {"e", filter_text<escape_html>},
    {"escape", filter_text<escape_html>},
    {"forceescape", filter_text<escape_html>},
    {"wordcount", filter_wordcount},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"center", filter_center},
    {"truncate", filter_truncate},
    {"format", filter_format},
    {"tojson", filter_tojson},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"default", filter_default},
    {"d", filter_default},
    {"length", filter_length},
    {"count", filter_length},
};

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

FilterFn find_filter(std::string_view name) {
  if (FilterFn filter = find_text_filter(name)) return filter;
  return find_sequence_filter(name);
}

}  // namespace pelton::text::jinja
