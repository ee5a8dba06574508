#include "text/jinja/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace pelton::text::jinja {
namespace {

struct Char {
  uint32_t code;
  size_t begin;
  size_t end;
  bool from_user;
};

// Calls fn for each character; stops early when the run fails.
template <typename Fn>
void for_each_char(Run& run, const Text& text, Fn fn) {
  if (!run.spend(static_cast<int64_t>(text.size() / 16))) return;
  size_t base = 0;
  for_each_part(text, 0, text.size(), [&](std::string_view part, bool from_user) {
    size_t at = 0;
    while (at < part.size() && run.ok()) {
      Char c{0, base + at, 0, from_user};
      decode_utf8(part, &at, &c.code);
      c.end = base + at;
      fn(c);
    }
    base += part.size();
  });
}

bool is_cased(uint32_t code) { return is_lower(code) || is_upper(code); }

// Sigma at the end of a word has its own lower form.
constexpr uint32_t kSigma = 0x3A3;
constexpr uint32_t kFinalSigma = 0x3C2;

void append_lower(TextBuilder& out, const Text& text, const Char& c, bool after_cased) {
  if (c.code == kSigma && after_cased) {
    size_t at = c.end;
    uint32_t next = 0;
    if (at >= text.size() || (decode_utf8(text.view(), &at, &next), !is_cased(next))) {
      return out.append_code(kFinalSigma, c.from_user);
    }
  }
  append_case(out, c.code, Case::kLower, c.from_user);
}

size_t skip_space_forward(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    size_t next = at;
    uint32_t code = 0;
    decode_utf8(text, &next, &code);
    if (is_space(code) != space) break;
    at = next;
  }
  return at;
}

size_t previous_char(std::string_view text, size_t at, uint32_t* code) {
  size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  size_t next = begin;
  decode_utf8(text, &next, code);
  return begin;
}

size_t skip_space_backward(std::string_view text, size_t at, bool space) {
  while (at > 0) {
    uint32_t code = 0;
    const size_t begin = previous_char(text, at, &code);
    if (is_space(code) != space) break;
    at = begin;
  }
  return at;
}

std::vector<uint32_t> codes_of(const Text& text) {
  std::vector<uint32_t> codes;
  size_t at = 0;
  uint32_t code = 0;
  while (at < text.size()) {
    decode_utf8(text.view(), &at, &code);
    codes.push_back(code);
  }
  std::sort(codes.begin(), codes.end());
  return codes;
}

bool is_line_end(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

std::vector<Value> split_space(Run& run, const Text& text, int64_t limit) {
  std::vector<Value> out;
  size_t at = skip_space_forward(text.view(), 0, true);
  while (at < text.size() && run.spend(1)) {
    if (limit == 0) {
      out.emplace_back(substring(run, text, at, text.size()));
      break;
    }
    const size_t end = skip_space_forward(text.view(), at, false);
    out.emplace_back(substring(run, text, at, end));
    at = skip_space_forward(text.view(), end, true);
    --limit;
  }
  return out;
}

std::vector<Value> rsplit_space(Run& run, const Text& text, int64_t limit) {
  std::vector<Value> out;
  size_t at = skip_space_backward(text.view(), text.size(), true);
  while (at > 0 && run.spend(1)) {
    if (limit == 0) {
      out.emplace_back(substring(run, text, 0, at));
      break;
    }
    const size_t begin = skip_space_backward(text.view(), at, false);
    out.emplace_back(substring(run, text, begin, at));
    at = skip_space_backward(text.view(), begin, true);
    --limit;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

Text change_case(Run& run, const Text& text, Case to) {
  TextBuilder out(run);
  bool after_cased = false;
  for_each_char(run, text, [&](const Char& c) {
    if (to == Case::kLower) {
      append_lower(out, text, c, after_cased);
    } else {
      append_case(out, c.code, to, c.from_user);
    }
    after_cased = is_cased(c.code);
  });
  return out.take();
}

Text capitalize(Run& run, const Text& text) {
  TextBuilder out(run);
  bool after_cased = false;
  for_each_char(run, text, [&](const Char& c) {
    if (c.begin == 0) {
      append_case(out, c.code, Case::kTitle, c.from_user);
    } else {
      append_lower(out, text, c, after_cased);
    }
    after_cased = is_cased(c.code);
  });
  return out.take();
}

Text title(Run& run, const Text& text) {
  TextBuilder out(run);
  bool after_cased = false;
  for_each_char(run, text, [&](const Char& c) {
    if (after_cased) {
      append_lower(out, text, c, true);
    } else {
      append_case(out, c.code, Case::kTitle, c.from_user);
    }
    after_cased = is_cased(c.code);
  });
  return out.take();
}

Text title_words(Run& run, const Text& text) {
  TextBuilder out(run);
  bool first = true;
  bool after_cased = false;
  for_each_char(run, text, [&](const Char& c) {
    const bool separator = is_space(c.code) || (c.code < 0x80 && c.code != 0 &&
                                                std::strchr("-({[<", static_cast<int>(c.code)));
    if (separator) {
      out.append_code(c.code, c.from_user);
    } else if (first) {
      append_case(out, c.code, Case::kUpper, c.from_user);
    } else {
      append_lower(out, text, c, after_cased);
    }
    first = separator;
    after_cased = is_cased(c.code);
  });
  return out.take();
}

Text swapcase(Run& run, const Text& text) {
  TextBuilder out(run);
  for_each_char(run, text, [&](const Char& c) {
    append_case(out, c.code, is_upper(c.code) ? Case::kLower : Case::kUpper, c.from_user);
  });
  return out.take();
}

Text strip(Run& run, const Text& text, const std::optional<Text>& chars, Side side) {
  if (!run.scan(text.size())) return {};
  const std::string_view bytes = text.view();
  std::vector<uint32_t> set;
  if (chars) {
    if (!run.spend(static_cast<int64_t>(chars->size()))) return {};
    set = codes_of(*chars);
  }
  const auto drop = [&](uint32_t code) {
    return chars ? std::binary_search(set.begin(), set.end(), code) : is_space(code);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    uint32_t code = 0;
    decode_utf8(bytes, &next, &code);
    if (!drop(code)) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    uint32_t code = 0;
    const size_t previous = previous_char(bytes, end, &code);
    if (!drop(code)) break;
    end = previous;
  }
  return substring(run, text, begin, end);
}

Text pad(Run& run, const Text& text, int64_t width, const Text& fill, Side side) {
  const auto size = static_cast<int64_t>(text.length());
  if (fill.length() != 1) {
    run.fail("The fill character must be exactly one character long");
    return {};
  }
  const int64_t missing = std::max<int64_t>(0, width - size);
  if (!run.spend(missing)) return {};
  // Side names where the text goes; Python's centre puts the odd one left only for odd widths.
  const int64_t left = side == Side::kLeft    ? 0
                       : side == Side::kRight ? missing
                                              : missing / 2 + (missing & width & 1);
  TextBuilder out(run);
  for (int64_t i = 0; i < left && run.ok(); ++i) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing && run.ok(); ++i) out.append(fill);
  return out.take();
}

Text zfill(Run& run, const Text& text, int64_t width) {
  const int64_t missing = std::max<int64_t>(0, width - static_cast<int64_t>(text.length()));
  if (!run.spend(missing)) return {};
  const size_t sign = !text.empty() && (text.view()[0] == '+' || text.view()[0] == '-') ? 1 : 0;
  TextBuilder out(run);
  out.append(text, 0, sign);
  for (int64_t i = 0; i < missing && run.ok(); ++i) out.append("0");
  out.append(text, sign, text.size());
  return out.take();
}

Text escape_html(Run& run, const Text& text) {
  if (text.markup()) return text;
  TextBuilder out(run);
  for_each_part(text, 0, text.size(), [&](std::string_view part, bool from_user) {
    size_t plain = 0;
    for (size_t i = 0; i < part.size() && run.ok(); ++i) {
      std::string_view escaped;
      switch (part[i]) {
        case '&':
          escaped = "&amp;";
          break;
        case '<':
          escaped = "&lt;";
          break;
        case '>':
          escaped = "&gt;";
          break;
        case '\'':
          escaped = "&#39;";
          break;
        case '"':
          escaped = "&#34;";
          break;
        default:
          continue;
      }
      out.append(part.substr(plain, i - plain), from_user);
      out.append(escaped, from_user);
      plain = i + 1;
    }
    out.append(part.substr(plain), from_user);
  });
  return out.take().as_markup();
}

size_t find_bytes(Run& run, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size() || !run.scan(text.size() - from)) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos
                        : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t rfind_bytes(Run& run, std::string_view text, std::string_view needle) {
  // Comparing at every place is quadratic in the worst case, so it is charged as such.
  if (needle.size() > text.size()) return std::string_view::npos;
  size_t at = text.size() - needle.size() + 1;
  while (at-- > 0) {
    if (std::memcmp(text.data() + at, needle.data(), needle.size()) == 0) return at;
    if ((at & 63) == 0 && !run.spend(1 + static_cast<int64_t>(needle.size() / 4))) break;
  }
  return std::string_view::npos;
}

Text replace(Run& run, const Text& text, const Text& from, const Text& to, int64_t count) {
  TextBuilder out(run);
  if (from.empty()) {
    // Before every character and at the end.
    for_each_char(run, text, [&](const Char& c) {
      if (count != 0) out.append(to);
      if (count > 0) --count;
      out.append(text, c.begin, c.end);
    });
    if (count != 0) out.append(to);
    return out.take();
  }
  size_t at = 0;
  while (count != 0 && run.ok()) {
    const size_t hit = find_bytes(run, text.view(), from.view(), at);
    if (hit == std::string_view::npos) break;
    out.append(text, at, hit);
    out.append(to);
    at = hit + from.size();
    if (count > 0) --count;
  }
  if (at == 0) return text;
  out.append(text, at, text.size());
  return out.take();
}

std::vector<Value> split(Run& run, const Text& text, const std::optional<Text>& separator,
                         int64_t limit) {
  if (!run.scan(text.size())) return {};
  if (!separator) return split_space(run, text, limit);
  if (separator->empty()) {
    run.fail("empty separator");
    return {};
  }
  std::vector<Value> out;
  size_t at = 0;
  while (limit != 0 && run.ok()) {
    // The tail is charged once above; memmem stops at the hit.
    const void* found = memmem(text.view().data() + at, text.size() - at, separator->view().data(),
                               separator->size());
    if (found == nullptr || !run.spend(1)) break;
    const auto hit = static_cast<size_t>(static_cast<const char*>(found) - text.view().data());
    out.emplace_back(substring(run, text, at, hit));
    at = hit + separator->size();
    --limit;
  }
  out.emplace_back(substring(run, text, at, text.size()));
  return out;
}

std::vector<Value> rsplit(Run& run, const Text& text, const std::optional<Text>& separator,
                          int64_t limit) {
  if (limit < 0) return split(run, text, separator, limit);
  if (!separator)
    return run.scan(text.size()) ? rsplit_space(run, text, limit) : std::vector<Value>();
  if (separator->empty()) {
    run.fail("empty separator");
    return {};
  }
  std::vector<Value> out;
  size_t end = text.size();
  while (limit > 0 && run.spend(1)) {
    const size_t hit = rfind_bytes(run, text.view().substr(0, end), separator->view());
    if (hit == std::string_view::npos) break;
    out.emplace_back(substring(run, text, hit + separator->size(), end));
    end = hit;
    --limit;
  }
  out.emplace_back(substring(run, text, 0, end));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Value> split_lines(Run& run, const Text& text, bool keep_ends) {
  std::vector<Value> out;
  if (!run.scan(text.size())) return out;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  size_t at = 0;
  while (at < bytes.size() && run.ok()) {
    const size_t end = at;
    uint32_t code = 0;
    decode_utf8(bytes, &at, &code);
    if (!is_line_end(code)) continue;
    if (code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    if (!run.spend(1)) break;
    out.emplace_back(substring(run, text, begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) out.emplace_back(substring(run, text, begin, bytes.size()));
  return out;
}

SliceRange resolve_slice(const SliceBounds& bounds, int64_t size) {
  const bool down = bounds.step < 0;
  const int64_t low = down ? -1 : 0;
  const int64_t high = down ? size - 1 : size;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = std::max(index + size, low);
    return std::min(index, high);
  };
  const int64_t start = bounds.start ? clamp(*bounds.start) : (down ? high : low);
  const int64_t stop = bounds.stop ? clamp(*bounds.stop) : (down ? low : high);
  SliceRange range{start, 0, bounds.step};
  if (down && stop < start) range.count = (start - stop - 1) / -bounds.step + 1;
  if (!down && start < stop) range.count = (stop - start - 1) / bounds.step + 1;
  return range;
}

Text slice_text(Run& run, const Text& text, const SliceBounds& bounds) {
  if (!run.scan(text.size())) return {};
  const SliceRange range = resolve_slice(bounds, static_cast<int64_t>(text.length()));
  if (range.count == 0) return {};
  if (range.step == 1) {
    const size_t begin = text.offset(static_cast<size_t>(range.first));
    return substring(run, text, begin, text.offset(static_cast<size_t>(range.first + range.count)));
  }
  std::vector<size_t> offsets;
  for_each_char(run, text, [&](const Char& c) { offsets.push_back(c.begin); });
  offsets.push_back(text.size());
  TextBuilder out(run);
  for (int64_t i = 0; i < range.count && run.ok(); ++i) {
    const auto index = static_cast<size_t>(range.first + i * range.step);
    if (index + 1 >= offsets.size()) break;
    out.append(text, offsets[index], offsets[index + 1]);
  }
  return out.take();
}

}  // namespace pelton::text::jinja
