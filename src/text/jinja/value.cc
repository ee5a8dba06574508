#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/utf8.h"

namespace pelton::text::jinja {
namespace {

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

bool check_depth(Run& run, int depth) {
  if (depth <= kMaxValueDepth) return true;
  run.fail(fmt::format("a value is nested deeper than {}", kMaxValueDepth));
  return false;
}

bool equal_sequences(Run& run, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(run, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find(run, b, key);
    if (other == nullptr || !equal(run, value, *other)) return false;
  }
  return true;
}

// -1, 0, 1, or 2 when one is not a number.
int compare_doubles(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return 2;
  return a < b ? -1 : a > b ? 1 : 0;
}

// Exact: the integer does not lose digits on its way to a double.
int compare_integer(int64_t a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= 0x1p63) return -1;
  if (b < -0x1p63) return 1;
  const auto whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  return compare_doubles(static_cast<double>(whole), b);
}

int compare_numbers(const Value& a, const Value& b) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) return *x < *y ? -1 : *x > *y ? 1 : 0;
  if (x) return compare_integer(*x, *b.number());
  if (!y) return compare_doubles(*a.number(), *b.number());
  const int reverse = compare_integer(*y, *a.number());
  return reverse == 2 ? 2 : -reverse;
}

std::shared_ptr<const Sequence> characters(Run& run, const Text& text) {
  std::vector<Value> items;
  if (!run.spend(static_cast<int64_t>(text.length()))) return nullptr;
  size_t at = 0;
  uint32_t code = 0;
  while (at < text.size() && run.ok()) {
    const size_t begin = at;
    decode_utf8(text.view(), &at, &code);
    items.push_back(substring(run, text, begin, at));
  }
  return make_sequence(run, std::move(items));
}

}  // namespace

std::optional<int64_t> Value::integer() const {
  if (const auto* i = get_if<int64_t>()) return *i;
  if (const auto* b = get_if<bool>()) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* d = get_if<double>()) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

const std::vector<Value>* Value::items() const {
  if (const auto* list = get_if<List>()) return &list->items->items;
  if (const auto* tuple = get_if<Tuple>()) return &tuple->items->items;
  return nullptr;
}

int Value::depth() const {
  if (const auto* list = get_if<List>()) return list->items->depth;
  if (const auto* tuple = get_if<Tuple>()) return tuple->items->depth;
  if (const auto* view = get_if<View>()) return view->items->depth;
  if (const auto* dict = get_if<Dict>()) return dict->data->depth;
  if (const auto* iterator = get_if<Iterator>()) return iterator->state->items->depth;
  if (const auto* method = get_if<Method>()) return method->data->depth;
  return 0;
}

std::shared_ptr<const Sequence> make_sequence(Run& run, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->depth = deepest(items);
  if (!run.hold(sizeof(Sequence) + items.size() * sizeof(Value)) ||
      !check_depth(run, sequence->depth)) {
    sequence->depth = 1;
    return sequence;
  }
  sequence->items = std::move(items);
  return sequence;
}

Value make_list(Run& run, std::vector<Value> items) {
  return List{make_sequence(run, std::move(items))};
}
Value make_tuple(Run& run, std::vector<Value> items) {
  return Tuple{make_sequence(run, std::move(items))};
}
Value make_iterator(Run& run, std::vector<Value> items) {
  auto state = std::make_shared<IteratorState>();
  state->items = make_sequence(run, std::move(items));
  return Iterator{std::move(state)};
}
Value make_view(Run& run, std::vector<Value> items, const char* name) {
  return View{make_sequence(run, std::move(items)), name};
}
Value make_undefined(std::string message) {
  return Undefined{std::make_shared<const std::string>(std::move(message))};
}

void DictBuilder::put(const Value& key, Value value, bool replace) {
  if (!hashable(key)) {
    run_.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    return;
  }
  if (const Value* old = find(run_, *data_, key)) {
    // The builder owns the dict until take().
    if (replace) *const_cast<Value*>(old) = std::move(value);
    return;
  }
  if (!run_.hold(2 * sizeof(Value) + 64)) return;
  const int depth = 1 + std::max(key.depth(), value.depth());
  if (!check_depth(run_, depth)) return;
  data_->depth = std::max(data_->depth, depth);
  data_->entries.emplace_back(key, std::move(value));
  // The view points into the key's shared bytes, which do not move with the entry.
  if (key.string()) data_->by_text.emplace(key.as<Text>().view(), data_->entries.size() - 1);
}

Value DictBuilder::take() { return Dict{std::move(data_)}; }

const Value* find(Run& run, const DictData& dict, const Value& key) {
  if (const auto* text = key.get_if<Text>()) {
    run.scan(text->size());
    const auto it = dict.by_text.find(text->view());
    return it == dict.by_text.end() ? nullptr : &dict.entries[it->second].second;
  }
  if (dict.by_text.size() == dict.entries.size()) return nullptr;
  for (const auto& [other, value] : dict.entries) {
    if (!other.string() && equal(run, other, key)) return &value;
  }
  return nullptr;
}

bool truth(const Value& value) {
  if (value.undefined() || value.none() || value.missing()) return false;
  if (const auto number = value.number()) return *number != 0;
  if (const auto* text = value.get_if<Text>()) return !text->empty();
  if (const auto* items = value.items()) return !items->empty();
  if (const auto* dict = value.get_if<Dict>()) return !dict->data->entries.empty();
  if (const auto* view = value.get_if<View>()) return !view->items->items.empty();
  return true;
}

std::optional<int64_t> length(Run& run, const Value& value) {
  if (value.undefined()) return 0;
  if (const auto* text = value.get_if<Text>()) {
    run.scan(text->size());
    return static_cast<int64_t>(text->length());
  }
  if (const auto* items = value.items()) return static_cast<int64_t>(items->size());
  if (const auto* dict = value.get_if<Dict>()) {
    return static_cast<int64_t>(dict->data->entries.size());
  }
  if (const auto* view = value.get_if<View>()) {
    return static_cast<int64_t>(view->items->items.size());
  }
  if (const auto* loop = value.get_if<Loop>()) {
    return static_cast<int64_t>(loop->state->items->items.size());
  }
  run.fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  return std::nullopt;
}

bool equal(Run& run, const Value& a, const Value& b) {
  if (!run.spend(1)) return false;
  if (a.number() && b.number()) return compare_numbers(a, b) == 0;
  if (a.string() && b.string()) {
    const Text& x = a.as<Text>();
    const Text& y = b.as<Text>();
    return x.size() == y.size() && run.scan(x.size()) && x.view() == y.view();
  }
  if (a.undefined() || a.none()) return a.undefined() ? b.undefined() : b.none();
  if (a.is<List>() && b.is<List>()) return equal_sequences(run, *a.items(), *b.items());
  if (a.is<Tuple>() && b.is<Tuple>()) return equal_sequences(run, *a.items(), *b.items());
  if (a.is<Dict>() && b.is<Dict>()) return equal_dicts(run, *a.as<Dict>().data, *b.as<Dict>().data);
  if (const auto* x = a.get_if<Namespace>()) {
    return b.is<Namespace>() && x->data == b.as<Namespace>().data;
  }
  if (const auto* x = a.get_if<Loop>()) return b.is<Loop>() && x->state == b.as<Loop>().state;
  if (const auto* x = a.get_if<Macro>()) return b.is<Macro>() && x->data == b.as<Macro>().data;
  if (const auto* x = a.get_if<Function>()) return b.is<Function>() && *x == b.as<Function>();
  if (const auto* x = a.get_if<Iterator>()) {
    return b.is<Iterator>() && x->state == b.as<Iterator>().state;
  }
  return false;
}

bool less(Run& run, const Value& a, const Value& b) {
  if (!run.spend(1) || fail_if_undefined(run, a) || fail_if_undefined(run, b)) return false;
  if (a.number() && b.number()) return compare_numbers(a, b) == -1;
  if (a.string() && b.string()) {
    // Bytes of UTF-8 sort as code points do.
    return run.scan(std::min(a.as<Text>().size(), b.as<Text>().size())) &&
           a.as<Text>().view() < b.as<Text>().view();
  }
  if ((a.is<List>() && b.is<List>()) || (a.is<Tuple>() && b.is<Tuple>())) {
    const auto& x = *a.items();
    const auto& y = *b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(run, x[i], y[i])) return less(run, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  run.fail(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(a),
                       type_name(b)));
  return false;
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (const auto* text = container.get_if<Text>()) {
    if (!item.string()) {
      run.fail(fmt::format("'in <string>' requires string as left operand, not {}",
                           item.undefined() ? "Undefined" : type_name(item)));
      return false;
    }
    const std::string_view needle = item.as<Text>().view();
    if (!run.scan(text->size())) return false;
    // memmem is linear whatever the two hold.
    return needle.empty() ||
           memmem(text->view().data(), text->size(), needle.data(), needle.size()) != nullptr;
  }
  if (const auto* dict = container.get_if<Dict>()) {
    if (hashable(item)) return find(run, *dict->data, item) != nullptr;
    run.fail(fmt::format("unhashable type: '{}'", type_name(item)));
    return false;
  }
  const auto items = iterate(run, container);
  if (!items) return false;
  return std::any_of(items->items.begin(), items->items.end(),
                     [&](const Value& other) { return equal(run, other, item); });
}

bool iterable(const Value& value) {
  return value.undefined() || value.string() || value.items() != nullptr || value.is<Dict>() ||
         value.is<View>() || value.is<Iterator>() || value.is<Loop>();
}

std::shared_ptr<const Sequence> iterate(Run& run, const Value& value) {
  if (value.undefined()) return std::make_shared<Sequence>();
  if (const auto* list = value.get_if<List>()) return list->items;
  if (const auto* tuple = value.get_if<Tuple>()) return tuple->items;
  if (const auto* view = value.get_if<View>()) return view->items;
  if (const auto* text = value.get_if<Text>()) return characters(run, *text);
  if (const auto* dict = value.get_if<Dict>()) {
    std::vector<Value> keys;
    if (!run.spend(static_cast<int64_t>(dict->data->entries.size()))) return nullptr;
    for (const auto& entry : dict->data->entries) keys.push_back(entry.first);
    return make_sequence(run, std::move(keys));
  }
  if (const auto* iterator = value.get_if<Iterator>()) {
    IteratorState& state = *iterator->state;
    if (state.next == 0) {
      state.next = state.items->items.size();
      // An empty iterator stays empty, so reading it again is harmless.
      return state.items;
    }
    std::vector<Value> rest(state.items->items.begin() + static_cast<ptrdiff_t>(state.next),
                            state.items->items.end());
    state.next = state.items->items.size();
    return make_sequence(run, std::move(rest));
  }
  run.fail(fmt::format("'{}' object is not iterable", type_name(value)));
  return nullptr;
}

bool hashable(const Value& value) {
  if (value.is<List>() || value.is<Dict>() || value.is<Missing>()) return false;
  if (const auto* tuple = value.get_if<Tuple>()) {
    return std::all_of(tuple->items->items.begin(), tuple->items->items.end(), hashable);
  }
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.undefined()) return "Undefined";
  if (value.none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.string()) return "str";
  if (value.is<List>()) return "list";
  if (value.is<Tuple>()) return "tuple";
  if (value.is<Dict>()) return "dict";
  if (const auto* view = value.get_if<View>()) return view->name;
  if (value.is<Iterator>()) return "generator";
  if (value.is<Namespace>()) return "Namespace";
  if (value.is<Loop>()) return "LoopContext";
  if (value.is<Macro>()) return "Macro";
  return "function";
}

bool fail_if_undefined(Run& run, const Value& value) {
  const auto* undefined = value.get_if<Undefined>();
  if (undefined == nullptr) return false;
  run.fail(undefined->message ? *undefined->message : "a value is undefined");
  return true;
}

}  // namespace pelton::text::jinja
