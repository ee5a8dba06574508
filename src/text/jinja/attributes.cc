// obj.name and obj[key], and the binding of arguments to parameter names.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/library.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

std::string object_name(const Value& value) {
  return value.none() ? "None" : fmt::format("{} object", type_name(value));
}

Value no_attribute(const Value& object, std::string_view name) {
  return make_undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

std::optional<Value> loop_attribute(Run& run, const Loop& loop, std::string_view name) {
  const LoopState& state = *loop.state;
  const auto index = static_cast<int64_t>(state.index);
  const auto& items = state.items->items;
  const auto size = static_cast<int64_t>(items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    return index > 0 ? items[state.index - 1] : make_undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? items[state.index + 1] : make_undefined("there is no next item");
  }
  const Value method = find_method(run, loop, name);
  if (!method.undefined()) return method;
  return std::nullopt;
}

const Value* dict_item(Run& run, const Value& object, const Value& key) {
  const auto* dict = object.get_if<Dict>();
  return dict == nullptr ? nullptr : find(run, *dict->data, key);
}

std::optional<Value> own_attribute(Run& run, const Value& object, std::string_view name) {
  if (const auto* space = object.get_if<Namespace>()) {
    for (const auto& [known, value] : space->data->attributes) {
      if (known == name) return value;
    }
    return std::nullopt;
  }
  if (const auto* loop = object.get_if<Loop>()) return loop_attribute(run, *loop, name);
  const Value method = find_method(run, object, name);
  // A method that is refused is found all the same: its message says so when it is used.
  if (!method.undefined() || method.as<Undefined>().message) return method;
  return std::nullopt;
}

Value index_sequence(Run& run, const Value& object, int64_t index) {
  if (const auto* text = object.get_if<Text>()) {
    if (!run.scan(text->size())) return {};
    const auto size = static_cast<int64_t>(text->length());
    if (index < 0) index += size;
    if (index >= 0 && index < size) {
      const size_t begin = text->offset(static_cast<size_t>(index));
      size_t end = begin + 1;
      while (end < text->size() && (static_cast<unsigned char>(text->view()[end]) & 0xC0) == 0x80) {
        ++end;
      }
      return substring(run, *text, begin, end);
    }
  } else if (const auto* items = object.items()) {
    const auto size = static_cast<int64_t>(items->size());
    if (index < 0) index += size;
    if (index >= 0 && index < size) return (*items)[static_cast<size_t>(index)];
  }
  return make_undefined(fmt::format("{} has no element {}", object_name(object), index));
}

}  // namespace

Value get_attribute(Run& run, const Value& object, std::string_view name) {
  if (fail_if_undefined(run, object)) return {};
  if (name.starts_with("__")) {
    return make_undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  if (auto own = own_attribute(run, object, name)) return *own;
  if (const Value* item = dict_item(run, object, Text(std::string(name)))) return *item;
  return no_attribute(object, name);
}

Value get_item(Run& run, const Value& object, const Value& key) {
  if (fail_if_undefined(run, object)) return {};
  if (object.is<Dict>() && hashable(key)) {
    if (const Value* item = dict_item(run, object, key)) return *item;
  } else if (const auto index = key.integer()) {
    return index_sequence(run, object, *index);
  }
  if (!key.string()) {
    return make_undefined(fmt::format("{} has no such element", object_name(object)));
  }
  const std::string_view name = key.as<Text>().view();
  if (name.starts_with("__")) return get_attribute(run, object, name);
  if (auto own = own_attribute(run, object, name)) return *own;
  return no_attribute(object, name);
}

bool bind(Run& run, std::string_view function, const Arguments& arguments,
          const std::vector<std::string_view>& names, size_t required, std::vector<Value>* bound) {
  bound->assign(names.size(), Missing{});
  if (arguments.positional.size() > names.size()) {
    run.fail(fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(),
                         arguments.positional.size()));
    return false;
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound->begin());
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      run.fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
      return false;
    }
    Value& slot = (*bound)[static_cast<size_t>(at - names.begin())];
    if (!slot.missing()) {
      run.fail(fmt::format("{}() got multiple values for argument '{}'", function, name));
      return false;
    }
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!(*bound)[i].missing()) continue;
    run.fail(fmt::format("{}() is missing the argument '{}'", function, names[i]));
    return false;
  }
  return true;
}

int64_t to_int(Run& run, const Value& value, int64_t fallback) {
  if (value.missing()) return fallback;
  if (const auto i = value.integer()) return *i;
  if (!fail_if_undefined(run, value)) {
    run.fail(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  }
  return fallback;
}

}  // namespace pelton::text::jinja
