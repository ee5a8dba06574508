// Values of a template, with Python's meaning of them. Lists, tuples and dicts never change after
// they are made, so no container can hold itself; what can change (namespaces, loops) belongs to
// the interpreter and is only pointed to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.h"

namespace pelton::text::jinja {

class Value;
struct Sequence;
struct DictData;
struct IteratorState;
struct NamespaceData;
struct LoopState;
struct MacroData;
struct MethodData;

// A deeper value is refused where it is made, so that printing, comparing and freeing one may
// recurse.
constexpr int kMaxValueDepth = 128;

struct Undefined {
  std::shared_ptr<const std::string> message;  // what using it says
};
struct Missing {};  // an argument that was not passed; never visible to a template
struct None {};
struct List {
  std::shared_ptr<const Sequence> items;
};
struct Tuple {
  std::shared_ptr<const Sequence> items;
};
// dict.keys(), values(), items(): countable, not indexable.
struct View {
  std::shared_ptr<const Sequence> items;
  const char* name;
};
struct Dict {
  std::shared_ptr<const DictData> data;
};
// What map, select, reverse and their like give: read once, always true, without a length.
struct Iterator {
  std::shared_ptr<IteratorState> state;
};
struct Namespace {
  NamespaceData* data;
};
struct Loop {
  LoopState* state;
};
struct Macro {
  const MacroData* data;
};
struct Method {
  std::shared_ptr<const MethodData> data;
};
enum class Function { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

class Value {
 public:
  using Storage = std::variant<Undefined, Missing, None, bool, int64_t, double, Text, List, Tuple,
                               View, Dict, Iterator, Namespace, Loop, Macro, Method, Function>;
  Value() = default;  // undefined
  template <typename T>
    requires std::constructible_from<Storage, T&&>
  Value(T&& value) : storage_(std::forward<T>(value)) {}  // NOLINT(google-explicit-constructor)

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  template <typename T>
  const T& as() const {
    return std::get<T>(storage_);
  }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&storage_);
  }
  bool undefined() const { return is<Undefined>(); }
  bool missing() const { return is<Missing>(); }
  bool none() const { return is<None>(); }
  bool string() const { return is<Text>(); }
  // Booleans count as integers, as in Python.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;
  // Items of a list or a tuple, else null.
  const std::vector<Value>* items() const;
  int depth() const;

 private:
  Storage storage_;
};

struct Sequence {
  std::vector<Value> items;
  int depth = 1;
};
struct DictData {
  std::vector<std::pair<Value, Value>> entries;          // insertion order
  std::unordered_map<std::string_view, size_t> by_text;  // into entries' keys
  int depth = 1;
};
struct IteratorState {
  std::shared_ptr<const Sequence> items;
  size_t next = 0;
};
struct NamespaceData {
  std::vector<std::pair<std::string, Value>> attributes;
};
struct LoopState {
  std::shared_ptr<const Sequence> items;
  size_t index = 0;
  std::vector<Value> last_changed;
  bool changed_called = false;
};
struct MethodData {
  Value self;
  std::string name;
  int depth = 1;
};

// Makers; they charge the run and fail it for a value nested too deep.
Value make_list(Run& run, std::vector<Value> items);
Value make_tuple(Run& run, std::vector<Value> items);
Value make_iterator(Run& run, std::vector<Value> items);
Value make_view(Run& run, std::vector<Value> items, const char* name);
Value make_undefined(std::string message);
std::shared_ptr<const Sequence> make_sequence(Run& run, std::vector<Value> items);

class DictBuilder {
 public:
  explicit DictBuilder(Run& run) : run_(run), data_(std::make_shared<DictData>()) {}
  // A key that is there keeps its place and takes the new value. Unhashable keys fail the run.
  void set(const Value& key, Value value) { put(key, std::move(value), true); }
  // Leaves the value of a key that is there.
  void set_first(const Value& key, Value value) { put(key, std::move(value), false); }
  Value take();

 private:
  void put(const Value& key, Value value, bool replace);
  Run& run_;
  std::shared_ptr<DictData> data_;
};

// Null when absent.
const Value* find(Run& run, const DictData& dict, const Value& key);

// bool(value), len(value), value == other, value < other, other in value.
bool truth(const Value& value);
std::optional<int64_t> length(Run& run, const Value& value);
bool equal(Run& run, const Value& a, const Value& b);
bool less(Run& run, const Value& a, const Value& b);
bool contains(Run& run, const Value& container, const Value& item);
// What iter(value) goes through; null (and a failed run) for what cannot be iterated. Reading an
// iterator uses it up.
std::shared_ptr<const Sequence> iterate(Run& run, const Value& value);
bool iterable(const Value& value);
bool hashable(const Value& value);

// Python's type name: "str", "int", "dict", "NoneType", ...
std::string_view type_name(const Value& value);
// Fails the run with what using an undefined value says; true when `value` is one.
bool fail_if_undefined(Run& run, const Value& value);

}  // namespace pelton::text::jinja
