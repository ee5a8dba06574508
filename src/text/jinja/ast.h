// Compiled template. Chains (a + b + c, a.b[0](c)|d) are lists, so the depth of the tree is bounded
// by the parser's nesting limit whatever the length of an expression.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/library.h"
#include "text/jinja/value.h"

namespace pelton::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *args
  ExprPtr star_star;  // **kwargs
};

// One suffix of a postfix chain.
struct Suffix {
  enum class Kind { kAttribute, kItem, kSlice, kCall, kFilter, kTest, kNotTest };
  Kind kind;
  uint32_t line;
  std::string name;  // attribute, filter or test
  ExprPtr index;
  std::array<ExprPtr, 3> slice;
  CallArguments arguments;
  FilterFn filter = nullptr;
  TestFn test = nullptr;
};

enum class Op {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr {
  enum class Kind {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,        // operands: key, value, key, value, ...
    kChain,       // operands[0] with suffixes
    kArithmetic,  // left to right
    kConcat,      // ~
    kCompare,     // each neighbouring pair, as Python chains them
    kAnd,
    kOr,
    kNot,
    kNegate,
    kPlus,
    kConditional,  // operands: value, condition, otherwise (may be absent)
  };
  Kind kind;
  uint32_t line;
  Value constant;
  std::string name;
  std::vector<ExprPtr> operands;
  std::vector<Op> ops;  // between operands
  std::vector<Suffix> suffixes;
};

// What an assignment or a loop binds: a name, a namespace's attribute, or several.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`; empty for a plain name
  std::vector<Target> parts;
  uint32_t line = 0;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameters {
  std::vector<std::string> names;
  std::vector<ExprPtr> defaults;  // of the last names
};

struct Stmt {
  enum class Kind {
    kData,
    kOutput,
    kIf,  // branches; a branch without a condition is the else
    kFor,
    kSet,
    kSetBlock,  // suffixes: filters over the body
    kWith,
    kFilter,
    kMacro,
    kCallBlock,
    kScope,  // {% generation %}
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;
    Body body;
  };
  Kind kind;
  uint32_t line;
  Value constant;     // kData's text
  ExprPtr expr;       // output, iterable, assigned value, call
  ExprPtr condition;  // a loop's filter
  std::string name;   // macro
  std::vector<Target> targets;
  std::vector<ExprPtr> values;  // kWith
  Parameters parameters;
  std::vector<Suffix> suffixes;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;  // a loop's else
};

}  // namespace pelton::text::jinja
