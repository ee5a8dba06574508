// Global functions: range, namespace, dict, raise_exception, strftime_now.
#include <fmt/format.h>

#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"
#include "text/jinja/print.h"

namespace pelton::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox

Value call_range(Run& run, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(run, "range", arguments, {"start", "stop", "step"}, 1, &a)) return {};
  const bool one = a[1].missing();
  const int64_t start = one ? 0 : to_int(run, a[0], 0);
  const int64_t stop = to_int(run, one ? a[0] : a[1], 0);
  const int64_t step = to_int(run, a[2], 1);
  if (!run.ok()) return {};
  if (step == 0) {
    run.fail("range() arg 3 must not be zero");
    return {};
  }
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      run.fail(fmt::format("range too big: more than {} items", kMaxRange));
      return {};
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(run, std::move(items));
}

// What dict(...) and namespace(...) take: a mapping or pairs, then keywords.
Value call_dict(Run& run, Arguments& arguments) {
  DictBuilder builder(run);
  if (arguments.positional.size() > 1) {
    run.fail("dict expected at most 1 argument");
    return {};
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* dict = source.get_if<Dict>()) {
      for (const auto& [key, value] : dict->data->entries) builder.set(key, value);
    } else if (const auto pairs = iterate(run, source)) {
      for (const Value& pair : pairs->items) {
        const auto both = iterate(run, pair);
        if (!both) return {};
        if (both->items.size() != 2) {
          run.fail("a dict is made of pairs");
          return {};
        }
        builder.set(both->items[0], both->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) builder.set(Text(name), value);
  return run.ok() ? builder.take() : Value();
}

Value call_namespace(Interpreter& interpreter, Arguments& arguments) {
  Run& run = interpreter.run();
  const Value dict = call_dict(run, arguments);
  if (!run.ok()) return {};
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : dict.as<Dict>().data->entries) {
    std::string name(to_text(run, key).view());
    if (name.starts_with('_')) {
      run.fail(
          fmt::format("a namespace cannot hold '{}': names with a leading underscore are "
                      "refused",
                      name));
      return {};
    }
    attributes.emplace_back(std::move(name), value);
  }
  return interpreter.make_namespace(std::move(attributes));
}

Value call_raise(Run& run, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(run, "raise_exception", arguments, {"message"}, 1, &a)) return {};
  run.fail_plain(std::string(to_text(run, a[0]).view()));
  return {};
}

Value call_strftime(Run& run, Arguments& arguments) {
  std::vector<Value> a;
  if (!jinja::bind(run, "strftime_now", arguments, {"format"}, 1, &a)) return {};
  const std::string format(to_text(run, a[0]).view());
  // Only plain directives: field widths could ask for any length.
  constexpr std::string_view kDirectives = "aAbBcdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ%";
  for (size_t i = format.find('%'); i != std::string::npos; i = format.find('%', i + 2)) {
    size_t directive = i + 1;
    if (directive < format.size() && format[directive] == '-') ++directive;
    if (directive < format.size() &&
        kDirectives.find(format[directive]) != std::string_view::npos) {
      continue;
    }
    run.fail(fmt::format("strftime_now: unsupported format '{}'", format.substr(0, 100)));
    return {};
  }
  if (format.empty()) return Text();
  if (format.size() > 1000) {
    run.fail("strftime_now: the format is too long");
    return {};
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(format.size() * 40, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  return Text(std::move(out));
}

}  // namespace

Value call_function(Interpreter& interpreter, Function function, Arguments& arguments) {
  Run& run = interpreter.run();
  switch (function) {
    case Function::kRange:
      return call_range(run, arguments);
    case Function::kNamespace:
      return call_namespace(interpreter, arguments);
    case Function::kDict:
      return call_dict(run, arguments);
    case Function::kRaiseException:
      return call_raise(run, arguments);
    case Function::kStrftimeNow:
      return call_strftime(run, arguments);
  }
  return {};
}

}  // namespace pelton::text::jinja
