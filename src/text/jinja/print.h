// How values become text: str(), repr() and json.dumps() as Python writes them.
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace pelton::text::jinja {

void append_str(TextBuilder& out, const Value& value);
void append_repr(TextBuilder& out, const Value& value);
Text to_text(Run& run, const Value& value);
// repr() of a double: the shortest digits that read back as the same number.
std::string float_repr(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level's
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace pelton::text::jinja
