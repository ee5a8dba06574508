// Filters over sequences and mappings.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/print.h"
#include "text/jinja/strings.h"

namespace pelton::text::jinja {
namespace {

Value ignore_case(Run& run, const Value& value) {
  return value.string() ? Value(change_case(run, value.as<Text>(), Case::kLower)) : value;
}

// "a.b.0" or a number: the items to take one after the other.
std::vector<Value> attribute_parts(Run& run, const Value& attribute) {
  if (attribute.none() || attribute.missing()) return {};
  if (!attribute.string()) return {attribute};
  std::vector<Value> parts = split(run, attribute.as<Text>(), Text("."), -1);
  for (Value& part : parts) {
    const std::string_view text = part.as<Text>().view();
    const bool digits =
        !text.empty() && text.size() < 10 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) {
      int64_t index = 0;
      for (char c : text) index = index * 10 + (c - '0');
      part = index;
    }
  }
  return parts;
}

Value take_attribute(Run& run, Value item, const std::vector<Value>& parts,
                     const Value& fallback = Missing{}) {
  for (const Value& part : parts) {
    item = get_item(run, item, part);
    if (!run.ok()) return {};
    if (item.undefined() && !fallback.missing() && !fallback.none()) item = fallback;
  }
  return item;
}

Value filter_first(Interpreter& in, const Value& input, Arguments&) {
  if (const auto* iterator = input.get_if<Iterator>()) {
    IteratorState& state = *iterator->state;
    if (state.next < state.items->items.size()) return state.items->items[state.next++];
    return make_undefined("No first item, sequence was empty.");
  }
  const auto items = iterate(in.run(), input);
  if (!items) return {};
  return items->items.empty() ? make_undefined("No first item, sequence was empty.")
                              : items->items.front();
}

Value filter_last(Interpreter& in, const Value& input, Arguments&) {
  if (input.is<Iterator>()) {
    in.run().fail("'generator' object is not reversible");
    return {};
  }
  const auto items = iterate(in.run(), input);
  if (!items) return {};
  return items->items.empty() ? make_undefined("No last item, sequence was empty.")
                              : items->items.back();
}

Value filter_join(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "join", arguments, {"d", "attribute"}, 0, &a)) return {};
  const Text separator = a[0].missing() ? Text() : to_text(run, a[0]);
  const std::vector<Value> parts = attribute_parts(run, a[1]);
  const auto items = iterate(run, input);
  if (!items) return {};
  TextBuilder out(run);
  for (size_t i = 0; i < items->items.size() && run.spend(1); ++i) {
    if (i > 0) out.append(separator);
    append_str(out, take_attribute(run, items->items[i], parts));
  }
  return out.take();
}

Value filter_list(Interpreter& in, const Value& input, Arguments&) {
  const auto items = iterate(in.run(), input);
  return items ? Value(List{items}) : Value();
}

Value filter_items(Interpreter& in, const Value& input, Arguments&) {
  Run& run = in.run();
  if (input.undefined()) return make_iterator(run, {});
  const auto* dict = input.get_if<Dict>();
  if (dict == nullptr) {
    run.fail("Can only get item pairs from a mapping.");
    return {};
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict->data->entries)
    pairs.push_back(make_tuple(run, {key, value}));
  return make_iterator(run, std::move(pairs));
}

Value filter_map(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  if (!truth(input)) return make_iterator(run, {});
  std::vector<Value> parts;
  Value fallback = Missing{};
  FilterFn filter = nullptr;
  if (arguments.positional.empty()) {
    std::vector<Value> a;
    if (!jinja::bind(run, "map", arguments, {"attribute", "default"}, 1, &a)) return {};
    parts = attribute_parts(run, a[0]);
    fallback = a[1];
  } else {
    const Text name = to_text(run, arguments.positional[0]);
    filter = find_filter(name.view());
    if (filter == nullptr) {
      run.fail(fmt::format("No filter named '{}'.", name.view()));
      return {};
    }
    arguments.positional.erase(arguments.positional.begin());
  }
  const auto items = iterate(run, input);
  if (!items) return {};
  Interpreter::Deeper deeper(in);  // the mapped filter may be map itself
  std::vector<Value> out;
  for (const Value& item : items->items) {
    if (!run.spend(1 + static_cast<int64_t>(arguments.positional.size()))) return {};
    Arguments copy = arguments;
    out.push_back(filter == nullptr ? take_attribute(run, item, parts, fallback)
                                    : filter(in, item, copy));
  }
  return make_iterator(run, std::move(out));
}

Value select_items(Interpreter& in, const Value& input, Arguments& arguments, bool keep,
                   bool by_attribute) {
  Run& run = in.run();
  if (!truth(input)) return make_iterator(run, {});
  auto& positional = arguments.positional;
  std::vector<Value> parts;
  if (by_attribute) {
    if (positional.empty()) {
      run.fail("Missing parameter for attribute name");
      return {};
    }
    parts = attribute_parts(run, positional[0]);
    positional.erase(positional.begin());
  }
  TestFn test = nullptr;
  if (!positional.empty()) {
    const Text name = to_text(run, positional[0]);
    test = find_test(name.view());
    if (test == nullptr) {
      run.fail(fmt::format("No test named '{}'.", name.view()));
      return {};
    }
    positional.erase(positional.begin());
  }
  const auto items = iterate(run, input);
  if (!items) return {};
  std::vector<Value> out;
  for (const Value& item : items->items) {
    if (!run.spend(1)) return {};
    const Value tested = take_attribute(run, item, parts);
    Arguments copy = arguments;
    const bool passed = test == nullptr ? truth(tested) : test(in, tested, copy);
    if (run.ok() && passed == keep) out.push_back(item);
  }
  return make_iterator(run, std::move(out));
}

// Sorts `items` by `keys` (same length), stably. Comparing what cannot be compared fails the run.
std::vector<Value> sorted(Run& run, const std::vector<Value>& items, const std::vector<Value>& keys,
                          bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!run.spend(static_cast<int64_t>(items.size() * std::bit_width(items.size())))) return {};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!run.ok()) return false;
    return reverse ? less(run, keys[b], keys[a]) : less(run, keys[a], keys[b]);
  });
  std::vector<Value> out;
  for (size_t i : order) out.push_back(items[i]);
  return out;
}

Value filter_sort(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0, &a))
    return {};
  std::vector<std::vector<Value>> attributes;
  if (a[2].string()) {
    for (const Value& part : split(run, a[2].as<Text>(), Text(","), -1)) {
      attributes.push_back(attribute_parts(run, part));
    }
  } else {
    attributes.push_back(attribute_parts(run, a[2]));
  }
  const auto items = iterate(run, input);
  if (!items) return {};
  std::vector<Value> keys;
  for (const Value& item : items->items) {
    std::vector<Value> key;
    for (const auto& parts : attributes) {
      Value value = take_attribute(run, item, parts);
      key.push_back(truth(a[1]) ? value : ignore_case(run, value));
    }
    keys.push_back(make_list(run, std::move(key)));
    if (!run.ok()) return {};
  }
  return make_list(run, sorted(run, items->items, keys, truth(a[0])));
}

Value filter_dictsort(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0, &a))
    return {};
  const auto* dict = input.get_if<Dict>();
  const std::string by = a[1].missing() ? "key" : std::string(to_text(run, a[1]).view());
  if (dict == nullptr || (by != "key" && by != "value")) {
    run.fail("dictsort needs a mapping and sorts by 'key' or 'value'");
    return {};
  }
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : dict->data->entries) {
    pairs.push_back(make_tuple(run, {key, value}));
    const Value& chosen = by == "key" ? key : value;
    keys.push_back(truth(a[0]) ? chosen : ignore_case(run, chosen));
    if (!run.ok()) return {};
  }
  return make_list(run, sorted(run, pairs, keys, truth(a[2])));
}

Value filter_unique(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "unique", arguments, {"case_sensitive", "attribute"}, 0, &a)) return {};
  const std::vector<Value> parts = attribute_parts(run, a[1]);
  const auto items = iterate(run, input);
  if (!items) return {};
  DictBuilder seen(run);
  for (const Value& item : items->items) {
    Value key = take_attribute(run, item, parts);
    if (!truth(a[0])) key = ignore_case(run, key);
    seen.set_first(key, item);
    if (!run.ok()) return {};
  }
  const Value dict = seen.take();
  std::vector<Value> out;
  for (const auto& entry : dict.as<Dict>().data->entries) out.push_back(entry.second);
  return make_iterator(run, std::move(out));
}

Value extreme(Interpreter& in, const Value& input, Arguments& arguments, bool largest) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0,
                   &a)) {
    return {};
  }
  const std::vector<Value> parts = attribute_parts(run, a[1]);
  const auto items = iterate(run, input);
  if (!items) return {};
  Value best = make_undefined("No aggregated item, sequence was empty.");
  Value best_key;
  for (size_t i = 0; i < items->items.size() && run.ok(); ++i) {
    Value key = take_attribute(run, items->items[i], parts);
    if (!truth(a[0])) key = ignore_case(run, key);
    if (i > 0 && !(largest ? less(run, best_key, key) : less(run, key, best_key))) continue;
    best = items->items[i];
    best_key = std::move(key);
  }
  return best;
}

Value filter_sum(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "sum", arguments, {"attribute", "start"}, 0, &a)) return {};
  const std::vector<Value> parts = attribute_parts(run, a[0]);
  Value total = a[1].missing() ? Value(int64_t{0}) : a[1];
  if (total.string()) {
    run.fail("sum() can't sum strings");
    return {};
  }
  const auto items = iterate(run, input);
  if (!items) return {};
  for (const Value& item : items->items) {
    total = add(run, total, take_attribute(run, item, parts));
    if (!run.ok()) return {};
  }
  return total;
}

Value filter_reverse(Interpreter& in, const Value& input, Arguments&) {
  Run& run = in.run();
  if (const auto* text = input.get_if<Text>()) {
    return slice_text(run, *text, {std::nullopt, std::nullopt, -1});
  }
  const auto items = iterate(run, input);
  if (!items) return {};
  std::vector<Value> out(items->items.rbegin(), items->items.rend());
  return make_iterator(run, std::move(out));
}

Value filter_batch(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "batch", arguments, {"linecount", "fill_with"}, 1, &a)) return {};
  const int64_t count = to_int(run, a[0], 1);
  const auto items = iterate(run, input);
  if (!items || !run.ok()) return {};
  std::vector<Value> out;
  std::vector<Value> row;
  for (const Value& item : items->items) {
    if (static_cast<int64_t>(row.size()) == count) {
      out.push_back(make_list(run, std::move(row)));
      row = {};
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fill = !a[1].missing() && !a[1].none();
    while (fill && static_cast<int64_t>(row.size()) < count && run.spend(1)) row.push_back(a[1]);
    out.push_back(make_list(run, std::move(row)));
  }
  return make_iterator(run, std::move(out));
}

Value filter_slice(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "slice", arguments, {"slices", "fill_with"}, 1, &a)) return {};
  const int64_t slices = to_int(run, a[0], 1);
  const auto items = iterate(run, input);
  if (!items || !run.ok()) return {};
  if (slices <= 0 || !run.spend(slices)) {
    run.fail("slice needs a positive number of slices");
    return {};
  }
  const auto size = static_cast<int64_t>(items->items.size());
  const int64_t extra = size % slices;
  std::vector<Value> out;
  auto at = items->items.begin();
  for (int64_t i = 0; i < slices && run.ok(); ++i) {
    const int64_t take = size / slices + (i < extra ? 1 : 0);
    std::vector<Value> row(at, at + take);
    at += take;
    if (!a[1].missing() && !a[1].none() && i >= extra) row.push_back(a[1]);
    out.push_back(make_list(run, std::move(row)));
  }
  return make_iterator(run, std::move(out));
}

Value filter_attr(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "attr", arguments, {"name"}, 1, &a)) return {};
  if (fail_if_undefined(run, input)) return {};
  const Text name = to_text(run, a[0]);
  if (input.is<Dict>()) {
    const Value method = find_method(run, input, name.view());
    if (!method.undefined()) return method;
    return make_undefined(fmt::format("'dict object' has no attribute '{}'", name.view()));
  }
  return get_attribute(run, input, name.view());
}

Value filter_groupby(Interpreter& in, const Value& input, Arguments& arguments) {
  Run& run = in.run();
  std::vector<Value> a;
  if (!jinja::bind(run, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1, &a))
    return {};
  const std::vector<Value> parts = attribute_parts(run, a[0]);
  const auto items = iterate(run, input);
  if (!items) return {};
  std::vector<Value> keyed;
  std::vector<Value> keys;
  for (const Value& item : items->items) {
    const Value key = take_attribute(run, item, parts, a[1]);
    keys.push_back(truth(a[2]) ? key : ignore_case(run, key));
    keyed.push_back(make_list(run, {keys.back(), key, item}));
    if (!run.ok()) return {};
  }
  std::vector<Value> out;
  std::vector<Value> group;
  Value name;
  Value current;
  for (const Value& entry : sorted(run, keyed, keys, false)) {
    const auto& fields = *entry.items();
    if (!group.empty() && !equal(run, fields[0], current)) {
      out.push_back(make_tuple(run, {name, make_list(run, std::move(group))}));
      group = {};
    }
    if (group.empty()) {
      current = fields[0];
      name = fields[1];
    }
    group.push_back(fields[2]);
  }
  if (!group.empty()) out.push_back(make_tuple(run, {name, make_list(run, std::move(group))}));
  return make_list(run, std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"list", filter_list},
    {"items", filter_items},
    {"map", filter_map},
    {"select", [](Interpreter& in, const Value& v,
                  Arguments& a) { return select_items(in, v, a, true, false); }},
    {"reject", [](Interpreter& in, const Value& v,
                  Arguments& a) { return select_items(in, v, a, false, false); }},
    {"selectattr", [](Interpreter& in, const Value& v,
                      Arguments& a) { return select_items(in, v, a, true, true); }},
    {"rejectattr", [](Interpreter& in, const Value& v,
                      Arguments& a) { return select_items(in, v, a, false, true); }},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"min", [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, false); }},
    {"max", [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, true); }},
    {"sum", filter_sum},
    {"reverse", filter_reverse},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {"attr", filter_attr},
    {"groupby", filter_groupby},
};

}  // namespace

FilterFn find_sequence_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace pelton::text::jinja
