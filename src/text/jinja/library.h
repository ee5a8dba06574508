// The filters, tests, methods and global functions that templates may call.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace pelton::text::jinja {

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

using FilterFn = Value (*)(Interpreter&, const Value& input, Arguments& arguments);
using TestFn = bool (*)(Interpreter&, const Value& input, Arguments& arguments);

// Null for a name that this interpreter does not know.
FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);

// A method of str, list, tuple or dict as an attribute; undefined when there is none. Methods that
// would change their object give a value whose use is an error.
Value find_method(Run& run, const Value& self, std::string_view name);
// Methods that Python has and this interpreter does not: refused when a template is compiled.
bool unsupported_method(std::string_view name);
Value call_method(Interpreter& interpreter, const MethodData& method, Arguments& arguments);
Value call_function(Interpreter& interpreter, Function function, Arguments& arguments);

// getattr-like lookup of `obj.name` and `obj[key]`, with jinja2's order of attribute and item.
Value get_attribute(Run& run, const Value& object, std::string_view name);
Value get_item(Run& run, const Value& object, const Value& key);

// Binds arguments to parameter names; absent ones are missing(). Fails the run on too many, unknown
// or absent required ones.
bool bind(Run& run, std::string_view function, const Arguments& arguments,
          const std::vector<std::string_view>& names, size_t required, std::vector<Value>* bound);

// Argument helpers: fail the run on another type. A missing value gives the fallback.
int64_t to_int(Run& run, const Value& value, int64_t fallback);

// left op right for the arithmetic operators.
Value add(Run& run, const Value& left, const Value& right);
Value multiply(Run& run, const Value& left, const Value& right);

// The filters of each file.
struct FilterEntry {
  std::string_view name;
  FilterFn function;
};
FilterFn find_text_filter(std::string_view name);
FilterFn find_sequence_filter(std::string_view name);

}  // namespace pelton::text::jinja
