#include <fmt/format.h>

#include <optional>
#include <span>
#include <string_view>

#include "text/jinja/parser_base.h"

namespace pelton::text::jinja {
namespace {

// A list of operands and the operators between them, or the single operand itself.
ExprPtr chain_of(Expr::Kind kind, uint32_t line, std::vector<ExprPtr> operands,
                 std::vector<Op> ops) {
  if (operands.size() == 1) return std::move(operands[0]);
  ExprPtr expr = make_expr(kind, line);
  expr->operands = std::move(operands);
  expr->ops = std::move(ops);
  return expr;
}

constexpr NamedOp kComparisons[] = {{"==", Op::kEqual},  {"!=", Op::kNotEqual},
                                    {"<", Op::kLess},    {"<=", Op::kLessEqual},
                                    {">", Op::kGreater}, {">=", Op::kGreaterEqual}};
constexpr NamedOp kSums[] = {{"+", Op::kAdd}, {"-", Op::kSubtract}};
constexpr NamedOp kProducts[] = {
    {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
constexpr NamedOp kPowers[] = {{"**", Op::kPower}};

std::optional<Op> find_op(std::string_view text, std::span<const NamedOp> ops) {
  for (const NamedOp& named : ops) {
    if (named.text == text) return named.op;
  }
  return std::nullopt;
}

std::vector<Suffix>* suffixes_of(ExprPtr* expr) {
  if ((*expr)->kind != Expr::Kind::kChain) {
    ExprPtr chain = make_expr(Expr::Kind::kChain, (*expr)->line);
    chain->operands.push_back(std::move(*expr));
    *expr = std::move(chain);
  }
  return &(*expr)->suffixes;
}

}  // namespace

ExprPtr make_expr(Expr::Kind kind, uint32_t line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void ParserBase::fail(std::string message, uint32_t line) {
  if (!ok()) return;
  status_ = data_loss(fmt::format("line {}: {}", line == 0 ? current().line : line, message));
}

void ParserBase::fail_unsupported(std::string message, uint32_t line) {
  if (!ok()) return;
  status_ = unsupported(fmt::format("line {}: {}", line == 0 ? current().line : line, message));
}

bool ParserBase::Nesting::ok() {
  if (parser_.depth_ > parser_.max_depth_) {
    parser_.fail_unsupported(
        fmt::format("blocks and expressions nest deeper than {}", parser_.max_depth_));
  }
  return parser_.ok();
}

bool ParserBase::expect_op(std::string_view text) {
  if (skip_op(text)) return true;
  fail(fmt::format("expected '{}', got {}", text, describe(current())));
  return false;
}

bool ParserBase::expect(TokenKind kind, std::string_view what) {
  if (is(kind)) {
    next();
    return true;
  }
  fail(fmt::format("expected {}, got {}", what, describe(current())));
  return false;
}

std::string ParserBase::expect_name() {
  if (is(TokenKind::kName)) return next().text;
  fail(fmt::format("expected a name, got {}", describe(current())));
  return {};
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  Nesting nesting(*this);
  ExprPtr none = make_expr(Expr::Kind::kConstant, current().line);
  if (!nesting.ok()) return none;
  ExprPtr expr = with_conditional ? parse_conditional() : parse_or();
  return ok() ? std::move(expr) : std::move(none);
}

void ExpressionParser::check_known(const Suffix& suffix, std::string_view what, bool known) {
  if (known || branches_ > 0) return;
  fail_unsupported(fmt::format("unknown {} '{}'", what, suffix.name), suffix.line);
}

ExprPtr ExpressionParser::parse_conditional() {
  ExprPtr value = parse_or();
  while (ok() && is_name("if")) {
    ExprPtr expr = make_expr(Expr::Kind::kConditional, next().line);
    expr->operands.push_back(std::move(value));
    expr->operands.push_back(parse_or());
    expr->operands.push_back(skip_name("else") ? parse_expression() : nullptr);
    value = std::move(expr);
  }
  return value;
}

// Operands of one kind with the operators that `skip` finds between them.
ExprPtr ExpressionParser::parse_chain(Expr::Kind kind, ExprPtr (ExpressionParser::*operand)(),
                                      FunctionRef<std::optional<Op>()> skip) {
  const uint32_t line = current().line;
  std::vector<ExprPtr> operands;
  std::vector<Op> ops;
  operands.push_back((this->*operand)());
  while (ok()) {
    const std::optional<Op> op = skip();
    if (!op) break;
    ops.push_back(*op);
    operands.push_back((this->*operand)());
  }
  return chain_of(kind, line, std::move(operands), std::move(ops));
}

// The same with one operator, which the kind stands for.
ExprPtr ExpressionParser::parse_joined(Expr::Kind kind, ExprPtr (ExpressionParser::*operand)(),
                                       FunctionRef<bool()> skip) {
  const uint32_t line = current().line;
  std::vector<ExprPtr> operands;
  do {
    operands.push_back((this->*operand)());
  } while (ok() && skip());
  return chain_of(kind, line, std::move(operands), {});
}

ExprPtr ExpressionParser::parse_or() {
  return parse_joined(Expr::Kind::kOr, &ExpressionParser::parse_and,
                      [&] { return skip_name("or"); });
}

ExprPtr ExpressionParser::parse_and() {
  return parse_joined(Expr::Kind::kAnd, &ExpressionParser::parse_not,
                      [&] { return skip_name("and"); });
}

ExprPtr ExpressionParser::parse_not() {
  const uint32_t line = current().line;
  bool negated = false;
  bool any = false;
  while (skip_name("not")) {
    negated = !negated;
    any = true;
  }
  ExprPtr operand = parse_compare();
  if (!any) return operand;
  ExprPtr expr = make_expr(Expr::Kind::kNot, line);
  expr->operands.push_back(std::move(operand));
  if (negated) return expr;
  ExprPtr twice = make_expr(Expr::Kind::kNot, line);
  twice->operands.push_back(std::move(expr));
  return twice;
}

std::optional<Op> ExpressionParser::skip_comparison() {
  std::optional<Op> op;
  if (is(TokenKind::kOperator)) {
    op = find_op(current().text, kComparisons);
  } else if (is_name("in")) {
    op = Op::kIn;
  } else if (is_name("not") && look().kind == TokenKind::kName && look().text == "in") {
    next();
    op = Op::kNotIn;
  }
  if (op) next();
  return op;
}

ExprPtr ExpressionParser::parse_compare() {
  return parse_chain(Expr::Kind::kCompare, &ExpressionParser::parse_sum,
                     [&] { return skip_comparison(); });
}

std::optional<Op> ExpressionParser::skip_one_of(std::span<const NamedOp> ops) {
  if (!is(TokenKind::kOperator)) return std::nullopt;
  const std::optional<Op> op = find_op(current().text, ops);
  if (op) next();
  return op;
}

ExprPtr ExpressionParser::parse_sum() {
  return parse_chain(Expr::Kind::kArithmetic, &ExpressionParser::parse_concat,
                     [&] { return skip_one_of(kSums); });
}

ExprPtr ExpressionParser::parse_concat() {
  return parse_joined(Expr::Kind::kConcat, &ExpressionParser::parse_product,
                      [&] { return skip_op("~"); });
}

ExprPtr ExpressionParser::parse_product() {
  return parse_chain(Expr::Kind::kArithmetic, &ExpressionParser::parse_power,
                     [&] { return skip_one_of(kProducts); });
}

ExprPtr ExpressionParser::parse_power() {
  return parse_chain(Expr::Kind::kArithmetic, &ExpressionParser::parse_signed,
                     [&] { return skip_one_of(kPowers); });
}

ExprPtr ExpressionParser::parse_signed() { return parse_unary(true); }

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    Nesting nesting(*this);
    if (!nesting.ok()) return make_expr(Expr::Kind::kConstant, current().line);
    const Token sign = next();
    expr = make_expr(sign.text == "-" ? Expr::Kind::kNegate : Expr::Kind::kPlus, sign.line);
    expr->operands.push_back(parse_unary(false));
  } else {
    expr = parse_primary();
  }
  parse_postfix(&expr);
  if (with_filter) parse_filters_and_tests(&expr);
  return expr;
}

ExprPtr ExpressionParser::parse_primary() {
  ExprPtr expr = make_expr(Expr::Kind::kConstant, current().line);
  if (!ok()) return expr;
  const Token& token = current();
  if (token.kind == TokenKind::kName) {
    const std::string name = next().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      expr->constant = name == "true" || name == "True";
    } else if (name == "none" || name == "None") {
      expr->constant = None{};
    } else {
      expr->kind = Expr::Kind::kName;
      expr->name = name;
    }
  } else if (token.kind == TokenKind::kString) {
    std::string text;
    while (is(TokenKind::kString)) text += next().text;  // neighbours join, as in Python
    expr->constant = Text(std::move(text));
  } else if (token.kind == TokenKind::kInteger) {
    expr->constant = next().integer;
  } else if (token.kind == TokenKind::kFloat) {
    expr->constant = next().number;
  } else if (skip_op("(")) {
    expr = parse_tuple(true, "", true);
    expect_op(")");
  } else if (is_op("[")) {
    expr = parse_list();
  } else if (is_op("{")) {
    expr = parse_dict();
  } else {
    fail(fmt::format("unexpected {}", describe(token)));
  }
  return expr;
}

bool ExpressionParser::tuple_ends(std::string_view stop) const {
  return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is_op(")") ||
         (!stop.empty() && is_name(stop));
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view stop,
                                      bool parenthesised) {
  const uint32_t line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (ok() && !tuple_ends(stop)) {
    items.push_back(parse_expression(with_conditional));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !parenthesised) {
    fail(fmt::format("expected an expression, got {}", describe(current())));
  }
  ExprPtr expr = make_expr(Expr::Kind::kTuple, line);
  expr->operands = std::move(items);
  return expr;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr expr = make_expr(Expr::Kind::kList, next().line);
  while (ok() && !is_op("]")) {
    if (!expr->operands.empty() && (!expect_op(",") || is_op("]"))) break;
    expr->operands.push_back(parse_expression());
  }
  expect_op("]");
  return expr;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr expr = make_expr(Expr::Kind::kDict, next().line);
  while (ok() && !is_op("}")) {
    if (!expr->operands.empty() && (!expect_op(",") || is_op("}"))) break;
    expr->operands.push_back(parse_expression());
    expect_op(":");
    expr->operands.push_back(parse_expression());
  }
  expect_op("}");
  return expr;
}

void ExpressionParser::parse_postfix(ExprPtr* expr) {
  while (ok()) {
    if (is_op(".") || is_op("[")) {
      parse_subscript(suffixes_of(expr));
    } else if (is_op("(")) {
      Suffix suffix{Suffix::Kind::kCall, current().line, {}, {}, {}, {}};
      suffix.arguments = parse_call_arguments();
      suffixes_of(expr)->push_back(std::move(suffix));
    } else {
      break;
    }
  }
}

void ExpressionParser::parse_filters_and_tests(ExprPtr* expr) {
  while (ok()) {
    if (is_op("|")) {
      parse_filter(suffixes_of(expr));
    } else if (is_name("is")) {
      parse_test(suffixes_of(expr));
    } else if (is_op("(")) {
      Suffix suffix{Suffix::Kind::kCall, current().line, {}, {}, {}, {}};
      suffix.arguments = parse_call_arguments();
      suffixes_of(expr)->push_back(std::move(suffix));
    } else {
      break;
    }
  }
}

void ExpressionParser::parse_subscript(std::vector<Suffix>* suffixes) {
  Suffix suffix{Suffix::Kind::kAttribute, current().line, {}, {}, {}, {}};
  if (skip_op(".")) {
    if (is(TokenKind::kInteger)) {
      suffix.kind = Suffix::Kind::kItem;
      suffix.index = make_expr(Expr::Kind::kConstant, current().line);
      suffix.index->constant = next().integer;
    } else {
      suffix.name = expect_name();
      if (is_op("(") && unsupported_method(suffix.name)) {
        fail_unsupported(fmt::format("unsupported method '{}'", suffix.name), suffix.line);
      }
    }
  } else {
    next();
    parse_index(&suffix);
    if (is_op(",")) fail_unsupported("a subscript with several indices is not supported");
    expect_op("]");
  }
  suffixes->push_back(std::move(suffix));
}

void ExpressionParser::parse_index(Suffix* suffix) {
  suffix->kind = Suffix::Kind::kItem;
  ExprPtr first;
  if (!is_op(":")) first = parse_expression();
  if (!is_op(":")) {
    suffix->index = std::move(first);
    return;
  }
  suffix->kind = Suffix::Kind::kSlice;
  suffix->slice[0] = std::move(first);
  for (size_t part = 1; part < 3 && ok() && skip_op(":"); ++part) {
    if (!is_op(":") && !is_op("]") && !is_op(",")) suffix->slice[part] = parse_expression();
  }
}

CallArguments ExpressionParser::parse_call_arguments() {
  CallArguments arguments;
  expect_op("(");
  bool first = true;
  while (ok() && !is_op(")")) {
    if (!first && (!expect_op(",") || is_op(")"))) break;
    first = false;
    if (skip_op("*")) {
      if (arguments.star || arguments.star_star)
        fail("invalid syntax for function call expression");
      arguments.star = parse_expression();
    } else if (skip_op("**")) {
      if (arguments.star_star) fail("invalid syntax for function call expression");
      arguments.star_star = parse_expression();
    } else if (is(TokenKind::kName) && look().kind == TokenKind::kOperator && look().text == "=") {
      if (arguments.star_star) fail("invalid syntax for function call expression");
      std::string name = next().text;
      next();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (arguments.star || arguments.star_star || !arguments.named.empty()) {
        fail("invalid syntax for function call expression");
      }
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return arguments;
}

bool ExpressionParser::parse_filter(std::vector<Suffix>* suffixes) {
  expect_op("|");
  Suffix suffix{Suffix::Kind::kFilter, current().line, expect_name(), {}, {}, {}};
  suffix.filter = find_filter(suffix.name);
  check_known(suffix, "filter", suffix.filter != nullptr);
  if (ok() && is_op("(")) suffix.arguments = parse_call_arguments();
  suffixes->push_back(std::move(suffix));
  return ok();
}

void ExpressionParser::parse_test(std::vector<Suffix>* suffixes) {
  Suffix suffix{Suffix::Kind::kTest, next().line, {}, {}, {}, {}};
  if (skip_name("not")) suffix.kind = Suffix::Kind::kNotTest;
  suffix.name = expect_name();
  suffix.test = find_test(suffix.name);
  check_known(suffix, "test", suffix.test != nullptr);
  const bool operand =
      is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) || is_op("[") ||
      is_op("{") || (is(TokenKind::kName) && !is_name("else") && !is_name("or") && !is_name("and"));
  if (ok() && is_op("(")) {
    suffix.arguments = parse_call_arguments();
  } else if (ok() && operand) {
    if (is_name("is")) return fail("you cannot chain multiple tests with is");
    ExprPtr argument = parse_primary();
    parse_postfix(&argument);
    suffix.arguments.positional.push_back(std::move(argument));
  }
  suffixes->push_back(std::move(suffix));
}

}  // namespace pelton::text::jinja
