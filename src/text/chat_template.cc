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

  Result<jinja::Text> run(const Json& context) const {
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

Result<std::string> ChatTemplate::render(const Json& context) const {
  auto text = impl_->run(context);
  if (!text.ok()) return text.status();
  return std::string(text->view());
}

Result<std::vector<ChatTemplate::Piece>> ChatTemplate::render_pieces(const Json& context) const {
  auto text = impl_->run(context);
  if (!text.ok()) return text.status();
  std::vector<Piece> pieces;
  jinja::for_each_part(*text, 0, text->size(), [&](std::string_view part, bool from_user) {
    pieces.push_back({std::string(part), from_user});
  });
  return pieces;
}

Status normalize_messages(Json* messages) {
  if (!messages->is_array()) return invalid_argument("messages: must be a list");
  size_t index = 0;
  for (Json& message : messages->elements()) {
    const std::string place = "messages[" + std::to_string(index++) + "]";
    if (!message.is_object()) return invalid_argument(place + ": must be an object");
    Json* calls = message.find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Json& call : calls->elements()) {
      Json* function = call.find("function");
      Json* arguments = (function != nullptr ? function : &call)->find("arguments");
      if (arguments == nullptr || arguments->is_object()) continue;
      if (arguments->is_string()) {
        auto parsed = Json::parse(arguments->as_string());
        if (parsed.ok() && parsed->is_object()) {
          *arguments = *std::move(parsed);
          continue;
        }
        if (parsed.status().code() == StatusCode::kResourceExhausted) return parsed.status();
      }
      return invalid_argument(place + ".tool_calls: arguments must be a JSON object");
    }
  }
  return {};
}

}  // namespace pelton::text
