// `value is test`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace pelton::text::jinja {
namespace {

struct TestEntry {
  std::string_view name;
  TestFn function;
};

bool argument(Interpreter& in, Arguments& arguments, Value* out) {
  std::vector<Value> a;
  if (!jinja::bind(in.run(), "test", arguments, {"other"}, 1, &a)) return false;
  *out = a[0];
  return true;
}

template <Op op>
bool compares(Interpreter& in, const Value& value, Arguments& arguments) {
  Value other;
  return argument(in, arguments, &other) && compare(in.run(), op, value, other);
}

bool remainder_is(Interpreter& in, const Value& value, int64_t divisor, int64_t expected) {
  const Value rest = binary(in.run(), Op::kModulo, value, divisor);
  return in.run().ok() && equal(in.run(), rest, expected);
}

bool is_odd(Interpreter& in, const Value& value, Arguments&) {
  return remainder_is(in, value, 2, 1);
}
bool is_even(Interpreter& in, const Value& value, Arguments&) {
  return remainder_is(in, value, 2, 0);
}
bool is_divisible(Interpreter& in, const Value& value, Arguments& arguments) {
  Value divisor;
  if (!argument(in, arguments, &divisor)) return false;
  const Value rest = binary(in.run(), Op::kModulo, value, divisor);
  return in.run().ok() && equal(in.run(), rest, int64_t{0});
}

bool is_same(Interpreter& in, const Value& value, Arguments& arguments) {
  Value other;
  if (!argument(in, arguments, &other)) return false;
  const bool same_kind = type_name(value) == type_name(other);
  return same_kind && equal(in.run(), value, other);
}

bool cased(Interpreter& in, const Value& value, Arguments&, std::string_view method) {
  const Value text = to_text(in.run(), value);
  const Value bound = find_method(in.run(), text, method);
  Arguments none;
  return in.run().ok() && truth(call_method(in, *bound.as<Method>().data, none));
}

bool is_known(Interpreter& in, const Value& value, bool filter) {
  const Text name = to_text(in.run(), value);
  return filter ? find_filter(name.view()) != nullptr : find_test(name.view()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", [](Interpreter&, const Value& v, Arguments&) { return !v.undefined(); }},
    {"undefined", [](Interpreter&, const Value& v, Arguments&) { return v.undefined(); }},
    {"none", [](Interpreter&, const Value& v, Arguments&) { return v.none(); }},
    {"boolean", [](Interpreter&, const Value& v, Arguments&) { return v.is<bool>(); }},
    {"true", [](Interpreter&, const Value& v, Arguments&) { return v.is<bool>() && v.as<bool>(); }},
    {"false",
     [](Interpreter&, const Value& v, Arguments&) { return v.is<bool>() && !v.as<bool>(); }},
    {"integer", [](Interpreter&, const Value& v, Arguments&) { return v.is<int64_t>(); }},
    {"float", [](Interpreter&, const Value& v, Arguments&) { return v.is<double>(); }},
    {"number", [](Interpreter&, const Value& v, Arguments&) { return v.number().has_value(); }},
    {"string", [](Interpreter&, const Value& v, Arguments&) { return v.string(); }},
    {"mapping", [](Interpreter&, const Value& v, Arguments&) { return v.is<Dict>(); }},
    {"sequence",
     [](Interpreter&, const Value& v, Arguments&) {
       return v.undefined() || v.string() || v.items() != nullptr || v.is<Dict>();
     }},
    {"iterable", [](Interpreter&, const Value& v, Arguments&) { return iterable(v); }},
    {"callable",
     [](Interpreter&, const Value& v, Arguments&) {
       return v.undefined() || v.is<Macro>() || v.is<Method>() || v.is<Function>() || v.is<Loop>();
     }},
    {"escaped", [](Interpreter&, const Value&, Arguments&) { return false; }},
    {"sameas", is_same},
    {"lower",
     [](Interpreter& in, const Value& v, Arguments& a) { return cased(in, v, a, "islower"); }},
    {"upper",
     [](Interpreter& in, const Value& v, Arguments& a) { return cased(in, v, a, "isupper"); }},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"filter", [](Interpreter& in, const Value& v, Arguments&) { return is_known(in, v, true); }},
    {"test", [](Interpreter& in, const Value& v, Arguments&) { return is_known(in, v, false); }},
    {"in", compares<Op::kIn>},
    {"==", compares<Op::kEqual>},
    {"eq", compares<Op::kEqual>},
    {"equalto", compares<Op::kEqual>},
    {"!=", compares<Op::kNotEqual>},
    {"ne", compares<Op::kNotEqual>},
    {">", compares<Op::kGreater>},
    {"gt", compares<Op::kGreater>},
    {"greaterthan", compares<Op::kGreater>},
    {">=", compares<Op::kGreaterEqual>},
    {"ge", compares<Op::kGreaterEqual>},
    {"<", compares<Op::kLess>},
    {"lt", compares<Op::kLess>},
    {"lessthan", compares<Op::kLess>},
    {"<=", compares<Op::kLessEqual>},
    {"le", compares<Op::kLessEqual>},
};

}  // namespace

TestFn find_test(std::string_view name) {
  for (const TestEntry& entry : kTests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace pelton::text::jinja
