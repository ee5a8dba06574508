// Runs a compiled template. One interpreter renders once; the compiled template is shared and never
// written.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/library.h"

namespace pelton::text::jinja {

// Names visible from a place: its own and its parents'. Macros keep their scope's address, so a
// scope that one was made in outlives its block.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
  bool pinned = false;
};

struct MacroData {
  std::string_view name;
  const Parameters* parameters;
  const Body* body;
  Scope* scope;
};

class Interpreter {
 public:
  // `globals` are the context's members.
  Interpreter(Run& run, std::vector<std::pair<std::string, Value>> globals);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Empty when the run fails.
  Text render(const Body& body);

  // For the library.
  Run& run() { return run_; }
  Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);
  // One level of evaluation; too many fail the run.
  class Deeper {
   public:
    explicit Deeper(Interpreter& interpreter);
    ~Deeper() { --interpreter_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interpreter& interpreter_;
  };

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Enter;  // a scope for the extent of a block

  Flow execute(const Body& body, TextBuilder& out);
  Flow execute_statement(const Stmt& statement, TextBuilder& out);
  Flow execute_if(const Stmt& statement, TextBuilder& out);
  Flow execute_for(const Stmt& statement, TextBuilder& out);
  // Whether an iteration reached the end of the body: as in jinja2, one that was left by `continue`
  // or `break` does not keep the loop's else from running.
  bool execute_iterations(const Stmt& statement, LoopState& loop, TextBuilder& out);
  std::shared_ptr<const Sequence> filtered(const Stmt& statement,
                                           std::shared_ptr<const Sequence> items);
  void execute_set_block(const Stmt& statement);
  Flow execute_with(const Stmt& statement, TextBuilder& out);
  void execute_filter_block(const Stmt& statement, TextBuilder& out);
  void execute_call_block(const Stmt& statement, TextBuilder& out);
  Text capture(const Body& body);

  void assign(const Target& target, const Value& value);
  void assign_name(std::string_view name, Value value);
  void assign_attribute(const Target& target, const Value& value);
  Value lookup(std::string_view name);
  Value make_macro(std::string_view name, const Parameters& parameters, const Body& body);

  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_chain(const Expr& expr, const Value* caller = nullptr);
  Value eval_arithmetic(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_logic(const Expr& expr);
  Value eval_sign(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs);
  Value apply(const Suffix& suffix, const Value& input, const Value* caller);
  Value apply_slice(const Suffix& suffix, const Value& input);
  Arguments eval_arguments(const CallArguments& arguments);
  Value apply_filters(const std::vector<Suffix>& filters, Value value);
  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const MacroData& macro, Arguments& arguments);
  bool bind_parameters(const MacroData& macro, Arguments& arguments);

  Run& run_;
  Scope globals_;
  std::vector<std::pair<std::string, Value>> global_names_;
  Scope* scope_;
  int depth_ = 0;
  int calls_ = 0;
  // Owned here, because values may lead in circles through them.
  std::vector<std::unique_ptr<NamespaceData>> namespaces_;
  std::vector<std::unique_ptr<LoopState>> loops_;
  std::vector<std::unique_ptr<MacroData>> macros_;
  std::vector<std::unique_ptr<Scope>> pinned_;
  std::vector<std::unique_ptr<Scope>> spare_;
  size_t open_ = 0;  // scopes entered and not left
};

// Arithmetic and comparison of two values.
Value binary(Run& run, Op op, const Value& left, const Value& right);
bool compare(Run& run, Op op, const Value& left, const Value& right);

}  // namespace pelton::text::jinja
