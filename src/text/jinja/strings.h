// Python's string methods over texts. Positions and counts are in characters where Python's are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace pelton::text::jinja {

Text change_case(Run& run, const Text& text, Case to);
Text capitalize(Run& run, const Text& text);
Text title(Run& run, const Text& text);        // str.title()
Text title_words(Run& run, const Text& text);  // jinja2's filter: first letter of each word
Text swapcase(Run& run, const Text& text);

enum class Side { kBoth, kLeft, kRight };
// Without `chars`, white space.
Text strip(Run& run, const Text& text, const std::optional<Text>& chars, Side side);
Text pad(Run& run, const Text& text, int64_t width, const Text& fill, Side side);
Text zfill(Run& run, const Text& text, int64_t width);
Text replace(Run& run, const Text& text, const Text& from, const Text& to, int64_t count);

// HTML-escaped, unless it is markup already; the result is markup.
Text escape_html(Run& run, const Text& text);

// Without `separator`, runs of white space. `limit` < 0: no limit.
std::vector<Value> split(Run& run, const Text& text, const std::optional<Text>& separator,
                         int64_t limit);
std::vector<Value> rsplit(Run& run, const Text& text, const std::optional<Text>& separator,
                          int64_t limit);
std::vector<Value> split_lines(Run& run, const Text& text, bool keep_ends);

// Byte offset of the first (or last) occurrence at or after `from` bytes; npos when absent. Linear.
size_t find_bytes(Run& run, std::string_view text, std::string_view needle, size_t from);
size_t rfind_bytes(Run& run, std::string_view text, std::string_view needle);

// text[start:stop:step] with Python's clamping.
struct SliceBounds {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
// Indices of a slice over `size` elements: `count` of them from `first` by `step`.
struct SliceRange {
  int64_t first;
  int64_t count;
  int64_t step;
};
SliceRange resolve_slice(const SliceBounds& bounds, int64_t size);
Text slice_text(Run& run, const Text& text, const SliceBounds& bounds);

// "..." % arguments and "...".format(...). `arguments` is a tuple, a dict or one value.
Text percent_format(Run& run, const Text& format, const Value& arguments);
Text brace_format(Run& run, const Text& format, const std::vector<Value>& positional,
                  const std::vector<std::pair<std::string, Value>>& named);

}  // namespace pelton::text::jinja
