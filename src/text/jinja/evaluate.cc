// Expressions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

std::string_view op_text(Op op) {
  constexpr std::string_view kNames[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kNames[static_cast<size_t>(op)];
}

Value unsupported_operands(Run& run, Op op, const Value& left, const Value& right) {
  if (!fail_if_undefined(run, left) && !fail_if_undefined(run, right)) {
    run.fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op_text(op),
                         type_name(left), type_name(right)));
  }
  return {};
}

template <typename T>
Value checked(Run& run, const std::optional<T>& result) {
  if (result) return *result;
  run.fail("an integer does not fit 64 bits");
  return {};
}

Value subtract(Run& run, int64_t x, int64_t y) {
  int64_t out = 0;
  const bool overflow = __builtin_sub_overflow(x, y, &out);
  return checked(run, overflow ? std::nullopt : std::optional<int64_t>(out));
}

Value float_divide(Run& run, double x, double y) {
  if (y == 0) {
    run.fail("division by zero");
    return {};
  }
  return x / y;
}

// Python's floor division and modulo: the remainder has the divisor's sign.
Value floor_divide(Run& run, const Value& left, const Value& right, bool modulo) {
  const auto x = left.integer();
  const auto y = right.integer();
  if (*right.number() == 0) {
    run.fail(modulo ? "integer modulo by zero" : "integer division or modulo by zero");
    return {};
  }
  if (!x || !y) {
    double remainder = std::fmod(*left.number(), *right.number());
    if (remainder != 0 && (remainder < 0) != (*right.number() < 0)) remainder += *right.number();
    if (modulo) return remainder;
    return std::floor((*left.number() - remainder) / *right.number() + 0.5);
  }
  if (*y == -1) return modulo ? Value(int64_t{0}) : checked(run, checked_mul(*x, int64_t{-1}));
  int64_t quotient = *x / *y;
  int64_t remainder = *x % *y;
  if (remainder != 0 && (remainder < 0) != (*y < 0)) {
    remainder += *y;
    --quotient;
  }
  return modulo ? remainder : quotient;
}

Value power(Run& run, const Value& left, const Value& right) {
  const auto base = left.integer();
  const auto exponent = right.integer();
  if (!base || !exponent || *exponent < 0) {
    if (*left.number() == 0 && *right.number() < 0) {
      run.fail("0.0 cannot be raised to a negative power");
      return {};
    }
    return std::pow(*left.number(), *right.number());
  }
  if (*base == 0 || *base == 1) return *exponent == 0 ? int64_t{1} : *base;
  if (*base == -1) return *exponent % 2 == 0 ? int64_t{1} : int64_t{-1};
  std::optional<int64_t> result = 1;
  for (int64_t i = 0; i < *exponent && result; ++i) result = checked_mul(*result, *base);
  return checked(run, result);
}

Value arithmetic(Run& run, Op op, const Value& left, const Value& right) {
  const auto x = left.integer();
  const auto y = right.integer();
  switch (op) {
    case Op::kSubtract:
      if (x && y) return subtract(run, *x, *y);
      return *left.number() - *right.number();
    case Op::kDivide:
      return float_divide(run, *left.number(), *right.number());
    case Op::kFloorDivide:
    case Op::kModulo:
      return floor_divide(run, left, right, op == Op::kModulo);
    default:
      return power(run, left, right);
  }
}

}  // namespace

Value add(Run& run, const Value& left, const Value& right) {
  if (left.string() && right.string()) {
    const bool markup = left.as<Text>().markup() || right.as<Text>().markup();
    TextBuilder out(run);
    out.append(markup ? escape_html(run, left.as<Text>()) : left.as<Text>());
    out.append(markup ? escape_html(run, right.as<Text>()) : right.as<Text>());
    return markup ? out.take().as_markup() : out.take();
  }
  if (left.number() && right.number()) {
    const auto x = left.integer();
    const auto y = right.integer();
    if (x && y) return checked(run, checked_add(*x, *y));
    return *left.number() + *right.number();
  }
  const bool lists = left.is<List>() && right.is<List>();
  if (lists || (left.is<Tuple>() && right.is<Tuple>())) {
    const size_t count = left.items()->size() + right.items()->size();
    if (!run.spend(static_cast<int64_t>(count))) return {};
    std::vector<Value> items = *left.items();
    items.insert(items.end(), right.items()->begin(), right.items()->end());
    return lists ? make_list(run, std::move(items)) : make_tuple(run, std::move(items));
  }
  if (left.string() && !fail_if_undefined(run, right)) {
    run.fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
    return {};
  }
  return unsupported_operands(run, Op::kAdd, left, right);
}

Value multiply(Run& run, const Value& left, const Value& right) {
  if (left.number() && right.number()) {
    const auto x = left.integer();
    const auto y = right.integer();
    if (x && y) return checked(run, checked_mul(*x, *y));
    return *left.number() * *right.number();
  }
  const bool swapped = left.integer().has_value();
  const Value& sequence = swapped ? right : left;
  const auto count = (swapped ? left : right).integer();
  if (!count || (!sequence.string() && sequence.items() == nullptr)) {
    return unsupported_operands(run, Op::kMultiply, left, right);
  }
  const int64_t times = std::max<int64_t>(0, *count);
  if (const auto* text = sequence.get_if<Text>()) {
    const size_t limit = run.limits().max_output_bytes;
    if (!text->empty() && static_cast<size_t>(times) > limit / text->size()) {
      run.fail(fmt::format("a text grows past the limit of {} bytes", limit));
      return {};
    }
    TextBuilder out(run);
    for (int64_t i = 0; i < times && !text->empty() && run.ok(); ++i) out.append(*text);
    return out.take();
  }
  std::vector<Value> items;
  const auto& source = *sequence.items();
  for (int64_t i = 0; i < times && !source.empty(); ++i) {
    if (!run.hold(source.size() * sizeof(Value))) return {};
    items.insert(items.end(), source.begin(), source.end());
  }
  return sequence.is<List>() ? make_list(run, std::move(items)) : make_tuple(run, std::move(items));
}

Value binary(Run& run, Op op, const Value& left, const Value& right) {
  if (op == Op::kAdd) return add(run, left, right);
  if (op == Op::kMultiply) return multiply(run, left, right);
  if (op == Op::kModulo && left.string()) return percent_format(run, left.as<Text>(), right);
  if (!left.number() || !right.number()) return unsupported_operands(run, op, left, right);
  return arithmetic(run, op, left, right);
}

bool compare(Run& run, Op op, const Value& left, const Value& right) {
  switch (op) {
    case Op::kEqual:
      return equal(run, left, right);
    case Op::kNotEqual:
      return !equal(run, left, right);
    case Op::kLess:
      return less(run, left, right);
    case Op::kGreater:
      return less(run, right, left);
    case Op::kLessEqual:
      return less(run, left, right) || equal(run, left, right);
    case Op::kGreaterEqual:
      return less(run, right, left) || equal(run, left, right);
    case Op::kIn:
      return contains(run, right, left);
    default:
      return !contains(run, right, left);
  }
}

Value Interpreter::eval(const Expr& expr) {
  if (!run_.spend(1)) return {};
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return expr.constant;
    case Expr::Kind::kName:
      return eval_name(expr);
    default:
      break;
  }
  Deeper deeper(*this);
  if (!run_.ok()) return {};
  switch (expr.kind) {
    case Expr::Kind::kList:
      return make_list(run_, eval_all(expr.operands));
    case Expr::Kind::kTuple:
      return make_tuple(run_, eval_all(expr.operands));
    case Expr::Kind::kDict:
      return eval_dict(expr);
    case Expr::Kind::kChain:
      return eval_chain(expr);
    case Expr::Kind::kArithmetic:
      return eval_arithmetic(expr);
    case Expr::Kind::kConcat:
      return eval_concat(expr);
    case Expr::Kind::kCompare:
      return eval_compare(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return eval_logic(expr);
    case Expr::Kind::kNot:
      return !truth(eval(*expr.operands[0]));
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus:
      return eval_sign(expr);
    default:
      return eval_conditional(expr);
  }
}

Value Interpreter::eval_name(const Expr& expr) { return lookup(expr.name); }

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) {
    values.push_back(eval(*expr));
    if (!run_.ok()) break;
  }
  return values;
}

Value Interpreter::eval_dict(const Expr& expr) {
  DictBuilder builder(run_);
  for (size_t i = 0; i + 1 < expr.operands.size() && run_.ok(); i += 2) {
    const Value key = eval(*expr.operands[i]);
    builder.set(key, eval(*expr.operands[i + 1]));
  }
  return builder.take();
}

Value Interpreter::eval_chain(const Expr& expr, const Value* caller) {
  Value value = eval(*expr.operands[0]);
  for (size_t i = 0; i < expr.suffixes.size() && run_.ok(); ++i) {
    const bool last = i + 1 == expr.suffixes.size();
    value = apply(expr.suffixes[i], value, last ? caller : nullptr);
  }
  return run_.ok() ? value : Value();
}

Value Interpreter::eval_arithmetic(const Expr& expr) {
  Value value = eval(*expr.operands[0]);
  for (size_t i = 0; i < expr.ops.size() && run_.ok(); ++i) {
    const Value right = eval(*expr.operands[i + 1]);
    if (!run_.ok()) break;
    run_.at(expr.line);
    value = binary(run_, expr.ops[i], value, right);
  }
  return run_.ok() ? value : Value();
}

Value Interpreter::eval_concat(const Expr& expr) {
  TextBuilder out(run_);
  for (const ExprPtr& operand : expr.operands) {
    append_str(out, eval(*operand));
    if (!run_.ok()) return {};
  }
  return out.take();
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.operands[0]);
  for (size_t i = 0; i < expr.ops.size() && run_.ok(); ++i) {
    Value right = eval(*expr.operands[i + 1]);
    if (!run_.ok()) break;
    run_.at(expr.line);
    if (!compare(run_, expr.ops[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval_logic(const Expr& expr) {
  const bool stop_on = expr.kind == Expr::Kind::kOr;
  Value value;
  for (const ExprPtr& operand : expr.operands) {
    value = eval(*operand);
    if (!run_.ok() || truth(value) == stop_on) break;
  }
  return value;
}

Value Interpreter::eval_sign(const Expr& expr) {
  const Value value = eval(*expr.operands[0]);
  if (!run_.ok() || fail_if_undefined(run_, value)) return {};
  const bool negate = expr.kind == Expr::Kind::kNegate;
  if (const auto i = value.integer()) {
    return negate ? checked(run_, checked_mul(*i, int64_t{-1})) : Value(*i);
  }
  if (const auto d = value.number()) return negate ? -*d : *d;
  run_.fail(
      fmt::format("bad operand type for unary {}: '{}'", negate ? '-' : '+', type_name(value)));
  return {};
}

Value Interpreter::eval_conditional(const Expr& expr) {
  const bool condition = truth(eval(*expr.operands[1]));
  if (!run_.ok()) return {};
  if (condition) return eval(*expr.operands[0]);
  if (expr.operands[2]) return eval(*expr.operands[2]);
  return make_undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                  "defined.",
                  expr.line));
}

Arguments Interpreter::eval_arguments(const CallArguments& source) {
  Arguments out;
  out.positional = eval_all(source.positional);
  for (const auto& [name, expr] : source.named) {
    if (!run_.ok()) return out;
    out.named.emplace_back(name, eval(*expr));
  }
  if (source.star && run_.ok()) {
    const auto items = iterate(run_, eval(*source.star));
    if (items && run_.hold(items->items.size() * sizeof(Value))) {
      out.positional.insert(out.positional.end(), items->items.begin(), items->items.end());
    }
  }
  if (source.star_star && run_.ok()) {
    const Value extra = eval(*source.star_star);
    const auto* dict = extra.get_if<Dict>();
    if (dict == nullptr) {
      run_.fail("the argument after ** must be a mapping");
      return out;
    }
    for (const auto& [key, value] : dict->data->entries) {
      if (!key.string() || !run_.hold(64)) {
        run_.fail("keywords must be strings");
        break;
      }
      out.named.emplace_back(std::string(key.as<Text>().view()), value);
    }
  }
  return out;
}

Value Interpreter::apply(const Suffix& suffix, const Value& input, const Value* caller) {
  if (!run_.spend(1)) return {};
  run_.at(suffix.line);
  switch (suffix.kind) {
    case Suffix::Kind::kAttribute:
      return get_attribute(run_, input, suffix.name);
    case Suffix::Kind::kItem: {
      const Value key = eval(*suffix.index);
      return run_.ok() ? get_item(run_, input, key) : Value();
    }
    case Suffix::Kind::kSlice:
      return apply_slice(suffix, input);
    default:
      break;
  }
  Arguments arguments = eval_arguments(suffix.arguments);
  if (!run_.ok()) return {};
  run_.at(suffix.line);
  if (suffix.kind == Suffix::Kind::kCall) {
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    return call(input, arguments);
  }
  if (suffix.kind != Suffix::Kind::kCall && suffix.filter == nullptr && suffix.test == nullptr) {
    run_.fail(fmt::format("No filter or test named '{}'.", suffix.name));
    return {};
  }
  if (suffix.kind == Suffix::Kind::kFilter) return suffix.filter(*this, input, arguments);
  const bool result = suffix.test(*this, input, arguments);
  return result == (suffix.kind == Suffix::Kind::kTest);
}

Value Interpreter::apply_filters(const std::vector<Suffix>& filters, Value value) {
  for (const Suffix& filter : filters) {
    if (!run_.ok()) return {};
    value = apply(filter, value, nullptr);
  }
  return value;
}

Value Interpreter::apply_slice(const Suffix& suffix, const Value& input) {
  SliceBounds bounds;
  for (size_t i = 0; i < 3; ++i) {
    if (!suffix.slice[i]) continue;
    const Value part = eval(*suffix.slice[i]);
    if (part.none() || !run_.ok()) continue;
    const auto index = part.integer();
    if (!index) {
      run_.fail("slice indices must be integers or None or have an __index__ method");
      return {};
    }
    if (i == 0) bounds.start = *index;
    if (i == 1) bounds.stop = *index;
    if (i == 2) bounds.step = std::max(*index, -INT64_MAX);
  }
  if (!run_.ok() || fail_if_undefined(run_, input)) return {};
  if (bounds.step == 0) {
    run_.fail("slice step cannot be zero");
    return {};
  }
  if (const auto* text = input.get_if<Text>()) return slice_text(run_, *text, bounds);
  const auto* items = input.items();
  if (items == nullptr) {
    run_.fail(fmt::format("'{}' object cannot be sliced", type_name(input)));
    return {};
  }
  const SliceRange range = resolve_slice(bounds, static_cast<int64_t>(items->size()));
  if (!run_.spend(range.count)) return {};
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    out.push_back((*items)[static_cast<size_t>(range.first + i * range.step)]);
  }
  return input.is<List>() ? make_list(run_, std::move(out)) : make_tuple(run_, std::move(out));
}

}  // namespace pelton::text::jinja
