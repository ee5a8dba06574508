#include "text/chat_template.h"

#include "text/jinja/from_json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace pelton::text {
namespace {

// Longest template source; real ones are below 100 KB.
constexpr size_t kMaxSource = 1u << 20;

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
  TemplateLimits limits;

  Result<jinja::Text> run(const OrderedJson& context) const {
    jinja::Run run(limits);
    jinja::Interpreter interpreter(run, jinja::globals_from_json(run, context));
    jinja::Text text = interpreter.render(body);
    if (!run.ok()) return run.status();
    return text;
  }
};

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                  TemplateLimits limits) {
  if (source.size() > kMaxSource) return data_loss("chat template: longer than 1 MB");
  auto body = jinja::parse(source, limits.max_depth);
  if (!body.ok()) return body.status().with_context("chat template");
  auto impl = std::make_shared<Impl>(Impl{std::move(body).value(), limits});
  auto compiled = std::make_shared<ChatTemplate>();
  compiled->impl_ = std::move(impl);
  return std::shared_ptr<const ChatTemplate>(std::move(compiled));
}

Result<std::string> ChatTemplate::render(const OrderedJson& context) const {
  auto text = impl_->run(context);
  if (!text.ok()) return text.status();
  return std::string(text->view());
}

Result<std::vector<ChatTemplate::Piece>> ChatTemplate::render_pieces(
    const OrderedJson& context) const {
  auto text = impl_->run(context);
  if (!text.ok()) return text.status();
  std::vector<Piece> pieces;
  jinja::for_each_part(*text, 0, text->size(), [&](std::string_view part, bool from_user) {
    pieces.push_back({std::string(part), from_user});
  });
  return pieces;
}

Status normalize_messages(OrderedJson* messages) {
  if (!messages->is_array()) return invalid_argument("messages: must be a list");
  size_t index = 0;
  for (OrderedJson& message : *messages) {
    const std::string place = "messages[" + std::to_string(index++) + "]";
    if (!message.is_object()) return invalid_argument(place + ": must be an object");
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (OrderedJson& call : *calls) {
      OrderedJson* target = &call;
      if (call.is_object() && call.contains("function")) target = &call["function"];
      if (!target->is_object() || !target->contains("arguments")) continue;
      OrderedJson& arguments = (*target)["arguments"];
      if (arguments.is_object()) continue;
      if (arguments.is_string()) {
        const auto& text = arguments.get_ref<const std::string&>();
        OrderedJson parsed = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
        if (parsed.is_object()) {
          arguments = std::move(parsed);
          continue;
        }
      }
      return invalid_argument(place + ".tool_calls: arguments must be a JSON object");
    }
  }
  return {};
}

}  // namespace pelton::text
