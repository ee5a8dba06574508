#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

// Levels of evaluation for each level of `max_depth`: an expression passes several on its way down.
constexpr int kLevelsPerDepth = 12;

}  // namespace

class Interpreter::Enter {
 public:
  Enter(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    make_room(interpreter.spare_);
    make_room(interpreter.pinned_);
    if (interpreter.spare_.empty()) {
      scope_ = std::make_unique<Scope>();
    } else {
      scope_ = std::move(interpreter.spare_.back());
      interpreter.spare_.pop_back();
    }
    scope_->parent = parent;
    interpreter.scope_ = scope_.get();
    ++interpreter.open_;
  }
  ~Enter() {
    --interpreter_.open_;
    interpreter_.scope_ = outer_;
    if (scope_->pinned) {
      interpreter_.pinned_.push_back(std::move(scope_));
    } else {
      scope_->names.clear();
      interpreter_.spare_.push_back(std::move(scope_));
    }
  }
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;

 private:
  // For every open scope and this one: leaving a scope must take no memory.
  void make_room(std::vector<std::unique_ptr<Scope>>& scopes) const {
    const size_t wanted = scopes.size() + interpreter_.open_ + 1;
    if (scopes.capacity() < wanted) scopes.reserve(std::max(wanted, 2 * scopes.capacity()));
  }

  Interpreter& interpreter_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

Interpreter::Deeper::Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
  const int limit = interpreter.run_.limits().max_depth;
  if (++interpreter_.depth_ > limit * kLevelsPerDepth) {
    interpreter_.run_.fail(fmt::format("evaluation nests deeper than the limit of {}", limit));
  }
}

Interpreter::Interpreter(Run& run, std::vector<std::pair<std::string, Value>> globals)
    : run_(run), global_names_(std::move(globals)), scope_(&globals_) {
  globals_.pinned = true;
  globals_.names = {{"range", Function::kRange},
                    {"namespace", Function::kNamespace},
                    {"dict", Function::kDict},
                    {"raise_exception", Function::kRaiseException},
                    {"strftime_now", Function::kStrftimeNow}};
  for (const auto& [name, value] : global_names_) assign_name(name, value);
}

Interpreter::~Interpreter() {
  // Namespaces and loops may hold each other's values.
  for (auto& space : namespaces_) space->attributes.clear();
}

Text Interpreter::render(const Body& body) {
  TextBuilder out(run_);
  Enter enter(*this, &globals_);
  execute(body, out);
  return run_.ok() ? out.take() : Text();
}

Value Interpreter::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  if (!run_.hold(sizeof(NamespaceData) + attributes.size() * 64)) return {};
  namespaces_.push_back(std::make_unique<NamespaceData>(NamespaceData{std::move(attributes)}));
  return Namespace{namespaces_.back().get()};
}

Interpreter::Flow Interpreter::execute(const Body& body, TextBuilder& out) {
  Deeper deeper(*this);
  for (const auto& statement : body) {
    if (!run_.spend(1)) return Flow::kBreak;
    run_.at(statement->line);
    const Flow flow = execute_statement(*statement, out);
    if (!run_.ok()) return Flow::kBreak;
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_statement(const Stmt& statement, TextBuilder& out) {
  switch (statement.kind) {
    case Stmt::Kind::kData:
      out.append(statement.constant.as<Text>());
      break;
    case Stmt::Kind::kOutput:
      append_str(out, eval(*statement.expr));
      break;
    case Stmt::Kind::kIf:
      return execute_if(statement, out);
    case Stmt::Kind::kFor:
      return execute_for(statement, out);
    case Stmt::Kind::kSet:
      assign(statement.targets[0], eval(*statement.expr));
      break;
    case Stmt::Kind::kSetBlock:
      execute_set_block(statement);
      break;
    case Stmt::Kind::kWith:
      return execute_with(statement, out);
    case Stmt::Kind::kFilter:
      execute_filter_block(statement, out);
      break;
    case Stmt::Kind::kMacro:
      assign_name(statement.name, make_macro(statement.name, statement.parameters, statement.body));
      break;
    case Stmt::Kind::kCallBlock:
      execute_call_block(statement, out);
      break;
    case Stmt::Kind::kScope: {
      Enter enter(*this, scope_);
      return execute(statement.body, out);
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Stmt& statement, TextBuilder& out) {
  for (const Stmt::Branch& branch : statement.branches) {
    const bool taken = !branch.condition || truth(eval(*branch.condition));
    if (!run_.ok()) break;
    if (taken) return execute(branch.body, out);
  }
  return Flow::kNext;
}

std::shared_ptr<const Sequence> Interpreter::filtered(const Stmt& statement,
                                                      std::shared_ptr<const Sequence> items) {
  if (!statement.condition) return items;
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    Enter enter(*this, scope_);
    assign(statement.targets[0], item);
    const bool keep = truth(eval(*statement.condition));
    if (!run_.spend(1)) break;
    if (keep) kept.push_back(item);
  }
  return make_sequence(run_, std::move(kept));
}

Interpreter::Flow Interpreter::execute_for(const Stmt& statement, TextBuilder& out) {
  const Value source = eval(*statement.expr);
  if (!run_.ok()) return Flow::kNext;
  auto items = iterate(run_, source);
  if (items) items = filtered(statement, std::move(items));
  if (!run_.ok() || !items) return Flow::kNext;
  if (!run_.hold(sizeof(LoopState))) return Flow::kNext;
  loops_.push_back(std::make_unique<LoopState>());
  LoopState& loop = *loops_.back();
  loop.items = std::move(items);
  const bool completed = execute_iterations(statement, loop, out);
  if (!run_.ok() || completed || statement.otherwise.empty()) return Flow::kNext;
  Enter enter(*this, scope_);
  return execute(statement.otherwise, out);
}

bool Interpreter::execute_iterations(const Stmt& statement, LoopState& loop, TextBuilder& out) {
  const auto items = loop.items;
  bool completed = false;
  for (loop.index = 0; loop.index < items->items.size(); ++loop.index) {
    if (!run_.spend(1)) break;
    Enter enter(*this, scope_);
    assign(statement.targets[0], items->items[loop.index]);
    assign_name("loop", Loop{&loop});
    const Flow flow = execute(statement.body, out);
    if (flow == Flow::kBreak || !run_.ok()) break;
    completed |= flow == Flow::kNext;
  }
  return completed;
}

Text Interpreter::capture(const Body& body) {
  TextBuilder out(run_);
  Enter enter(*this, scope_);
  execute(body, out);
  return run_.ok() ? out.take() : Text();
}

void Interpreter::execute_set_block(const Stmt& statement) {
  const Value value = apply_filters(statement.suffixes, capture(statement.body));
  if (run_.ok()) assign(statement.targets[0], value);
}

Interpreter::Flow Interpreter::execute_with(const Stmt& statement, TextBuilder& out) {
  const std::vector<Value> values = eval_all(statement.values);
  if (!run_.ok()) return Flow::kNext;
  Enter enter(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return execute(statement.body, out);
}

void Interpreter::execute_filter_block(const Stmt& statement, TextBuilder& out) {
  append_str(out, apply_filters(statement.suffixes, capture(statement.body)));
}

void Interpreter::execute_call_block(const Stmt& statement, TextBuilder& out) {
  const Value caller = make_macro("caller", statement.parameters, statement.body);
  append_str(out, eval_chain(*statement.expr, &caller));
}

Value Interpreter::make_macro(std::string_view name, const Parameters& parameters,
                              const Body& body) {
  if (!run_.hold(sizeof(MacroData) + sizeof(Scope))) return {};
  for (Scope* scope = scope_; scope != nullptr && !scope->pinned; scope = scope->parent) {
    scope->pinned = true;
  }
  macros_.push_back(std::make_unique<MacroData>(MacroData{name, &parameters, &body, scope_}));
  return Macro{macros_.back().get()};
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!run_.ok()) return;
  if (target.parts.empty()) {
    if (target.attribute.empty()) return assign_name(target.name, value);
    return assign_attribute(target, value);
  }
  if (fail_if_undefined(run_, value)) return;
  const auto items = iterate(run_, value);
  if (!items) return;
  if (items->items.size() != target.parts.size()) {
    return run_.fail(
        fmt::format("cannot unpack {} values into {}", items->items.size(), target.parts.size()));
  }
  Deeper deeper(*this);
  for (size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], items->items[i]);
}

void Interpreter::assign_name(std::string_view name, Value value) {
  for (auto& [known, old] : scope_->names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->names.emplace_back(name, std::move(value));
}

void Interpreter::assign_attribute(const Target& target, const Value& value) {
  const Value space = lookup(target.name);
  if (!space.is<Namespace>()) {
    return run_.fail("cannot assign attribute on non-namespace object");
  }
  if (target.attribute.starts_with('_')) {
    return run_.fail(
        fmt::format("a namespace cannot hold '{}': names with a leading underscore "
                    "are refused",
                    target.attribute));
  }
  NamespaceData& data = *space.as<Namespace>().data;
  for (auto& [name, old] : data.attributes) {
    if (name == target.attribute) {
      old = value;
      return;
    }
  }
  if (run_.hold(64)) data.attributes.emplace_back(target.attribute, value);
}

Value Interpreter::lookup(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return value;
    }
  }
  return make_undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (!run_.spend(1) || fail_if_undefined(run_, callee)) return {};
  if (const auto* function = callee.get_if<Function>()) {
    return call_function(*this, *function, arguments);
  }
  if (const auto* method = callee.get_if<Method>()) {
    return call_method(*this, *method->data, arguments);
  }
  if (const auto* macro = callee.get_if<Macro>()) return call_macro(*macro->data, arguments);
  run_.fail(fmt::format("'{}' object is not callable", type_name(callee)));
  return {};
}

Value Interpreter::call_macro(const MacroData& macro, Arguments& arguments) {
  if (calls_ >= run_.limits().max_depth) {
    run_.fail(fmt::format("macro calls nest deeper than the limit of {}", run_.limits().max_depth));
    return {};
  }
  ++calls_;
  TextBuilder out(run_);
  const uint32_t line = run_.line();
  {
    Enter enter(*this, macro.scope);
    if (bind_parameters(macro, arguments)) execute(*macro.body, out);
  }
  --calls_;
  if (run_.ok()) run_.at(line);
  return run_.ok() ? out.take() : Text();
}

bool Interpreter::bind_parameters(const MacroData& macro, Arguments& arguments) {
  const Parameters& parameters = *macro.parameters;
  const size_t count = parameters.names.size();
  const size_t first_default = count - parameters.defaults.size();
  std::vector<std::pair<std::string, Value>> named = std::move(arguments.named);
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    const auto it = std::find_if(named.begin(), named.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  };
  for (size_t i = 0; i < count && run_.ok(); ++i) {
    const std::string& name = parameters.names[i];
    if (i < arguments.positional.size()) {
      assign_name(name, arguments.positional[i]);
    } else if (auto value = take(name)) {
      assign_name(name, std::move(*value));
    } else if (i >= first_default) {
      assign_name(name, eval(*parameters.defaults[i - first_default]));
    } else {
      assign_name(name, make_undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  if (auto caller = take("caller")) assign_name("caller", std::move(*caller));
  std::vector<Value> rest;
  for (size_t i = count; i < arguments.positional.size(); ++i) {
    rest.push_back(arguments.positional[i]);
  }
  assign_name("varargs", make_tuple(run_, std::move(rest)));
  DictBuilder extra(run_);
  for (auto& [name, value] : named) extra.set(Text(name), std::move(value));
  assign_name("kwargs", extra.take());
  return run_.ok();
}

}  // namespace pelton::text::jinja
