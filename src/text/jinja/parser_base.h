// What both halves of the parser share: the token stream, errors and the nesting limit.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace pelton::text::jinja {

class ParserBase {
 public:
  ParserBase(std::vector<Token> tokens, int max_depth)
      : tokens_(std::move(tokens)), max_depth_(max_depth) {}

 protected:
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next() {
    const Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_op(std::string_view text) const {
    return is(TokenKind::kOperator) && current().text == text;
  }
  bool is_name(std::string_view text) const {
    return is(TokenKind::kName) && current().text == text;
  }
  bool skip_op(std::string_view text) { return is_op(text) && (next(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (next(), true); }
  bool expect_op(std::string_view text);
  bool expect(TokenKind kind, std::string_view what);
  std::string expect_name();

  bool ok() const { return status_.ok(); }
  // The first error wins.
  void fail(std::string message, uint32_t line = 0);
  void fail_unsupported(std::string message, uint32_t line = 0);

  // Guards one level of nesting; false (and an error) past the limit.
  class Nesting {
   public:
    explicit Nesting(ParserBase& parser) : parser_(parser) { ++parser_.depth_; }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool ok();

   private:
    ParserBase& parser_;
  };

  Status status_;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int max_depth_;
};

struct NamedOp {
  std::string_view text;
  Op op;
};

class ExpressionParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
  ExprPtr parse_expression(bool with_conditional = true);
  // An expression, or a tuple when commas follow. `stop` ends it besides the tag's end.
  ExprPtr parse_tuple(bool with_conditional, std::string_view stop = "",
                      bool parenthesised = false);
  CallArguments parse_call_arguments();
  // "|name(args)" without its input; `bare` when the bar is not there.
  bool parse_filter(std::vector<Suffix>* suffixes);

  // Inside a branch, where jinja2 refuses an unknown filter or test only when it is reached.
  int branches_ = 0;
  void check_known(const Suffix& suffix, std::string_view what, bool known);

 private:
  ExprPtr parse_chain(Expr::Kind kind, ExprPtr (ExpressionParser::*operand)(),
                      FunctionRef<std::optional<Op>()> skip);
  ExprPtr parse_joined(Expr::Kind kind, ExprPtr (ExpressionParser::*operand)(),
                       FunctionRef<bool()> skip);
  std::optional<Op> skip_one_of(std::span<const NamedOp> ops);
  std::optional<Op> skip_comparison();
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_signed();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  void parse_postfix(ExprPtr* expr);
  void parse_filters_and_tests(ExprPtr* expr);
  void parse_subscript(std::vector<Suffix>* suffixes);
  void parse_index(Suffix* suffix);
  void parse_test(std::vector<Suffix>* suffixes);
  bool tuple_ends(std::string_view stop) const;
};

ExprPtr make_expr(Expr::Kind kind, uint32_t line);

}  // namespace pelton::text::jinja
