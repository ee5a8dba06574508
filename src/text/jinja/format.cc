// "%"-formatting and str.format, for the plain conversions that templates use.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

struct Spec {
  bool left = false;
  bool zero = false;
  bool plus = false;
  int64_t width = 0;
  int64_t precision = -1;
};

// Reads digits at *at into *value, bounded.
void read_number(std::string_view text, size_t* at, int64_t* value) {
  while (*at < text.size() && std::isdigit(static_cast<unsigned char>(text[*at])) != 0) {
    *value = std::min<int64_t>(*value * 10 + (text[*at] - '0'), kMaxWidth + 1);
    ++*at;
  }
}

Text padded(Run& run, const Text& text, const Spec& spec, bool number) {
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) {
    run.fail("a format width is too large");
    return {};
  }
  if (number && spec.zero && !spec.left) return zfill(run, text, spec.width);
  return pad(run, text, spec.width, Text(" "), spec.left ? Side::kLeft : Side::kRight);
}

class PercentFormat {
 public:
  PercentFormat(Run& run, const Text& format, const Value& arguments)
      : run_(run), format_(format), arguments_(arguments), out_(run) {}

  Text result() {
    const std::string_view text = format_.view();
    size_t at = 0;
    while (at < text.size() && run_.spend(1)) {
      const size_t percent = std::min(text.find('%', at), text.size());
      out_.append(format_, at, percent);
      at = percent;
      if (at < text.size()) at = conversion(at + 1);
    }
    const auto* tuple = arguments_.get_if<Tuple>();
    if (run_.ok() && tuple != nullptr && next_ < tuple->items->items.size()) {
      run_.fail("not all arguments converted during string formatting");
    }
    return out_.take();
  }

 private:
  Value next_argument(const std::optional<std::string>& key) {
    if (key) {
      const auto* dict = arguments_.get_if<Dict>();
      const Value* found = dict == nullptr ? nullptr : find(run_, *dict->data, Text(*key));
      if (found == nullptr) run_.fail("format requires a mapping with the key");
      return found == nullptr ? Value() : *found;
    }
    if (const auto* tuple = arguments_.get_if<Tuple>()) {
      if (next_ < tuple->items->items.size()) return tuple->items->items[next_++];
    } else if (next_++ == 0) {
      return arguments_;
    }
    run_.fail("not enough arguments for format string");
    return {};
  }

  size_t conversion(size_t at) {
    const std::string_view text = format_.view();
    std::optional<std::string> key;
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) {
        run_.fail("incomplete format key");
        return text.size();
      }
      key = std::string(text.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    Spec spec;
    for (; at < text.size() && std::string_view("-0+ #").find(text[at]) != std::string_view::npos;
         ++at) {
      spec.left |= text[at] == '-';
      spec.zero |= text[at] == '0';
      spec.plus |= text[at] == '+';
    }
    read_number(text, &at, &spec.width);
    if (at < text.size() && text[at] == '.') {
      spec.precision = 0;
      read_number(text, &++at, &spec.precision);
    }
    if (at >= text.size()) {
      run_.fail("incomplete format");
      return at;
    }
    convert(text[at], spec, key);
    return at + 1;
  }

  void convert(char type, const Spec& spec, const std::optional<std::string>& key) {
    if (type == '%') return out_.append("%");
    const Value value = next_argument(key);
    if (!run_.ok()) return;
    if (type == 's' || type == 'r') {
      TextBuilder part(run_);
      if (type == 's') {
        append_str(part, value);
      } else {
        append_repr(part, value);
      }
      Text text = part.take();
      if (spec.precision >= 0) text = slice_text(run_, text, {0, spec.precision, 1});
      return out_.append(padded(run_, text, spec, false));
    }
    const auto number = value.number();
    if (!number) {
      return run_.fail(
          fmt::format("%{} format: a number is required, not {}", type, type_name(value)));
    }
    const bool whole = type == 'd' || type == 'i' || type == 'x' || type == 'X' || type == 'u';
    std::string digits;
    if (whole) {
      const int64_t i = value.integer()
                            ? *value.integer()
                            : static_cast<int64_t>(std::clamp(*number, -9.0e18, 9.0e18));
      digits = type == 'x'   ? fmt::format("{:x}", i)
               : type == 'X' ? fmt::format("{:X}", i)
                             : std::to_string(i);
    } else if (type == 'f' || type == 'F' || type == 'e' || type == 'g') {
      const int precision =
          spec.precision < 0 ? 6 : static_cast<int>(std::min(spec.precision, kMaxWidth));
      digits = type == 'e'   ? fmt::format("{:.{}e}", *number, precision)
               : type == 'g' ? fmt::format("{:.{}g}", *number, precision)
                             : fmt::format("{:.{}f}", *number, precision);
    } else {
      return run_.fail(fmt::format("unsupported format character '{}'", type));
    }
    if (spec.plus && digits[0] != '-') digits.insert(0, "+");
    out_.append(padded(run_, Text(digits), spec, true));
  }

  Run& run_;
  const Text& format_;
  const Value& arguments_;
  TextBuilder out_;
  size_t next_ = 0;
};

// {}, {0}, {name}, each optionally with !s or !r; other format specifications are refused.
class BraceFormat {
 public:
  BraceFormat(Run& run, const Text& format, const std::vector<Value>& positional,
              const std::vector<std::pair<std::string, Value>>& named)
      : run_(run), format_(format), positional_(positional), named_(named), out_(run) {}

  Text result() {
    const std::string_view text = format_.view();
    size_t at = 0;
    while (at < text.size() && run_.spend(1)) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out_.append(format_, at, brace);
      at = brace;
      if (at >= text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        out_.append(format_, at, at + 1);
        at += 2;
        continue;
      }
      const size_t close = text.find('}', at);
      if (text[at] == '}' || close == std::string_view::npos) {
        run_.fail("Single '}' or '{' encountered in format string");
        break;
      }
      field(text.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    return out_.take();
  }

 private:
  void field(std::string_view text) {
    bool repr = false;
    if (text.ends_with("!r") || text.ends_with("!s")) {
      repr = text.back() == 'r';
      text.remove_suffix(2);
    }
    const Value* value = lookup(text);
    if (value == nullptr) return;
    if (repr) {
      append_repr(out_, *value);
    } else {
      append_str(out_, *value);
    }
  }

  const Value* lookup(std::string_view name) {
    const bool digits = std::all_of(name.begin(), name.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (digits) {
      int64_t index = 0;
      size_t at = 0;
      read_number(name, &at, &index);
      const size_t place = name.empty() ? next_++ : static_cast<size_t>(index);
      if (place < positional_.size()) return &positional_[place];
      run_.fail("Replacement index out of range for positional args tuple");
      return nullptr;
    }
    for (const auto& [key, value] : named_) {
      if (key == name) return &value;
    }
    run_.fail(fmt::format("str.format: unknown or unsupported field '{}'", name));
    return nullptr;
  }

  Run& run_;
  const Text& format_;
  const std::vector<Value>& positional_;
  const std::vector<std::pair<std::string, Value>>& named_;
  TextBuilder out_;
  size_t next_ = 0;
};

}  // namespace

Text percent_format(Run& run, const Text& format, const Value& arguments) {
  return PercentFormat(run, format, arguments).result();
}

Text brace_format(Run& run, const Text& format, const std::vector<Value>& positional,
                  const std::vector<std::pair<std::string, Value>>& named) {
  return BraceFormat(run, format, positional, named).result();
}

}  // namespace pelton::text::jinja
