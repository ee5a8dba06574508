#include "text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/parser_base.h"

namespace pelton::text::jinja {
namespace {

using StmtPtr = std::unique_ptr<Stmt>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Body> parse_template() {
    Body body = parse_body({});
    if (!ok()) return status_;
    return body;
  }

 private:
  // Statements up to one of the end tags; the current token is then the end tag's name.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    Body body;
    Nesting nesting(*this);
    if (!nesting.ok()) return body;
    const uint32_t opened = current().line;
    while (ok() && !is(TokenKind::kEnd)) {
      if (is(TokenKind::kData)) {
        StmtPtr data = make(Stmt::Kind::kData);
        data->constant = Text(next().text);
        body.push_back(std::move(data));
      } else if (is(TokenKind::kVariableBegin)) {
        next();
        StmtPtr output = make(Stmt::Kind::kOutput);
        output->expr = parse_tuple(true);
        expect(TokenKind::kVariableEnd, "'}}'");
        body.push_back(std::move(output));
      } else if (is(TokenKind::kBlockBegin)) {
        next();
        if (is(TokenKind::kName) &&
            std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
          return body;
        }
        StmtPtr statement = parse_statement();
        expect(TokenKind::kBlockEnd, "'%}'");
        if (ok()) body.push_back(std::move(statement));
      } else {
        fail(fmt::format("unexpected {}", describe(current())));
      }
    }
    if (ends.size() > 0) {
      fail(fmt::format("unexpected end of template: the block opened on line {} needs '{}'", opened,
                       *std::prev(ends.end())));
    }
    return body;
  }

  // After a statement's head: the tag's end and the body.
  Body parse_block(std::initializer_list<std::string_view> ends) {
    skip_op(":");
    if (!expect(TokenKind::kBlockEnd, "'%}'")) return {};
    return parse_body(ends);
  }

  StmtPtr make(Stmt::Kind kind) {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  StmtPtr parse_statement() {
    if (!is(TokenKind::kName)) {
      fail(fmt::format("tag name expected, got {}", describe(current())));
      return nullptr;
    }
    const std::string& tag = current().text;
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "generation") return parse_generation();
    if (tag == "break" || tag == "continue") return parse_jump();
    constexpr std::array<std::string_view, 9> kRefused = {
        "block", "extends", "include", "import", "from", "autoescape", "trans", "do", "print"};
    if (std::find(kRefused.begin(), kRefused.end(), tag) != kRefused.end()) {
      fail_unsupported(fmt::format("unsupported statement '{}'", tag));
    } else {
      fail(fmt::format("unknown tag '{}'", tag));
    }
    return nullptr;
  }

  StmtPtr parse_if() {
    StmtPtr statement = make(Stmt::Kind::kIf);
    bool more = true;
    next();
    while (ok() && more) {
      Stmt::Branch branch;
      branch.condition = parse_tuple(false);
      ++branches_;
      branch.body = parse_block({"elif", "else", "endif"});
      --branches_;
      statement->branches.push_back(std::move(branch));
      if (!ok()) break;
      const std::string end = next().text;
      more = end == "elif";
      if (end == "else") {
        ++branches_;
        statement->branches.push_back({nullptr, parse_block({"endif"})});
        --branches_;
        if (ok()) next();
      }
    }
    return statement;
  }

  StmtPtr parse_for() {
    StmtPtr statement = make(Stmt::Kind::kFor);
    next();
    statement->targets.push_back(parse_target(false, "in"));
    if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe(current())));
    statement->expr = parse_tuple(false, "recursive");
    if (skip_name("if")) statement->condition = parse_expression();
    if (is_name("recursive")) fail_unsupported("unsupported: a recursive loop");
    ++loops_;
    statement->body = parse_block({"else", "endfor"});
    --loops_;
    if (ok() && next().text == "else") {
      statement->otherwise = parse_block({"endfor"});
      if (ok()) next();
    }
    return statement;
  }

  StmtPtr parse_set() {
    StmtPtr statement = make(Stmt::Kind::kSet);
    next();
    statement->targets.push_back(parse_target(true, ""));
    if (skip_op("=")) {
      statement->expr = parse_tuple(true);
      return statement;
    }
    statement->kind = Stmt::Kind::kSetBlock;
    while (ok() && is_op("|")) parse_filter(&statement->suffixes);
    statement->body = parse_block({"endset"});
    if (ok()) next();
    return statement;
  }

  // Loops do not reach into a macro's or a call's body.
  Body parse_function_body(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    Body body = parse_block({end});
    loops_ = loops;
    if (ok()) next();
    return body;
  }

  StmtPtr parse_macro() {
    StmtPtr statement = make(Stmt::Kind::kMacro);
    next();
    statement->name = expect_name();
    statement->parameters = parse_parameters();
    statement->body = parse_function_body("endmacro");
    return statement;
  }

  StmtPtr parse_call() {
    StmtPtr statement = make(Stmt::Kind::kCallBlock);
    next();
    if (is_op("(")) statement->parameters = parse_parameters();
    statement->expr = parse_expression();
    const Expr& call = *statement->expr;
    if (call.kind != Expr::Kind::kChain || call.suffixes.empty() ||
        call.suffixes.back().kind != Suffix::Kind::kCall) {
      fail("expected a call", statement->line);
    }
    statement->body = parse_function_body("endcall");
    return statement;
  }

  Parameters parse_parameters() {
    Parameters parameters;
    expect_op("(");
    while (ok() && !is_op(")")) {
      if (!parameters.names.empty() && !expect_op(",")) break;
      parameters.names.push_back(expect_name());
      if (skip_op("=")) {
        parameters.defaults.push_back(parse_expression());
      } else if (!parameters.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
    }
    expect_op(")");
    return parameters;
  }

  StmtPtr parse_filter_block() {
    StmtPtr statement = make(Stmt::Kind::kFilter);
    next();
    Suffix suffix{Suffix::Kind::kFilter, current().line, expect_name(), {}, {}, {}};
    suffix.filter = find_filter(suffix.name);
    check_known(suffix, "filter", suffix.filter != nullptr);
    if (ok() && is_op("(")) suffix.arguments = parse_call_arguments();
    statement->suffixes.push_back(std::move(suffix));
    while (ok() && is_op("|")) parse_filter(&statement->suffixes);
    statement->body = parse_block({"endfilter"});
    if (ok()) next();
    return statement;
  }

  StmtPtr parse_with() {
    StmtPtr statement = make(Stmt::Kind::kWith);
    next();
    while (ok() && !is(TokenKind::kBlockEnd)) {
      if (!statement->targets.empty()) expect_op(",");
      statement->targets.push_back(parse_target(false, ""));
      expect_op("=");
      statement->values.push_back(parse_expression());
    }
    statement->body = parse_block({"endwith"});
    if (ok()) next();
    return statement;
  }

  StmtPtr parse_generation() {
    StmtPtr statement = make(Stmt::Kind::kScope);
    next();
    statement->body = parse_function_body("endgeneration");
    return statement;
  }

  StmtPtr parse_jump() {
    StmtPtr statement =
        make(current().text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
    if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", current().text));
    next();
    return statement;
  }

  Target parse_single_target(bool with_attribute) {
    Target target;
    target.line = current().line;
    if (is_op("(")) {
      Nesting nesting(*this);
      if (!nesting.ok()) return target;
      next();
      target = parse_target(with_attribute, "");
      expect_op(")");
      return target;
    }
    target.name = expect_name();
    constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                            "True", "False", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end()) {
      fail(fmt::format("can't assign to '{}'", target.name), target.line);
    }
    if (with_attribute && skip_op(".")) target.attribute = expect_name();
    return target;
  }

  Target parse_target(bool with_attribute, std::string_view stop) {
    Target target = parse_single_target(with_attribute);
    if (!is_op(",")) return target;
    Target tuple;
    tuple.line = target.line;
    tuple.parts.push_back(std::move(target));
    while (ok() && skip_op(",")) {
      if (!is(TokenKind::kName) && !is_op("(")) break;
      if (!stop.empty() && is_name(stop)) break;
      tuple.parts.push_back(parse_single_target(with_attribute));
    }
    return tuple;
  }

  int loops_ = 0;
};

}  // namespace

Result<Body> parse(std::string_view source, int max_depth) {
  auto tokens = tokenize(source);
  if (!tokens.ok()) return tokens.status();
  return Parser(std::move(tokens).value(), max_depth).parse_template();
}

}  // namespace pelton::text::jinja
