// Any template over a small conversation, under tight budgets: it compiles and renders or says why
// not. The input is a template, or a template and a context separated by a NUL byte.
#include "text/chat_template.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using pelton::Json;
using pelton::text::ChatTemplate;

const Json& conversation() {
  static const Json context = *Json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi é 안"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi",
                  "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
                 {"role": "tool", "name": "f", "content": "3"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d",
               "parameters": {"type": "object", "properties": {"x": {"type": "array"}}}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  Json context = conversation();
  if (border != std::string_view::npos && size - border < 4096) {
    auto given = Json::parse(input.substr(border + 1));
    if (given.ok() && given->is_object()) context = *std::move(given);
  }
  pelton::text::TemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1u << 16;
  const auto compiled = ChatTemplate::compile(input.substr(0, border), limits);
  if (!compiled.ok()) return 0;
  const auto text = (*compiled)->render(context);
  const auto pieces = (*compiled)->render_pieces(context);
  if (text.ok() != pieces.ok()) {
    // The clock is the one input that may differ between two renderings.
    if (input.find("strftime_now") == std::string_view::npos) std::abort();
    return 0;
  }
  if (!text.ok()) return 0;
  if (text->size() > limits.max_output_bytes) std::abort();
  std::string joined;
  for (const auto& piece : *pieces) joined += piece.text;
  if (joined != *text && input.find("strftime_now") == std::string_view::npos) std::abort();
  return 0;
}
