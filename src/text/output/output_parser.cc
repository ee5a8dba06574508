#include "text/output/output_parser.h"

#include <array>
#include <utility>

#include "text/output/buffered_parser.h"
#include "text/output/reasoning_markers.h"

namespace pelton::text {
namespace {

template <typename Format>
struct Named {
  std::string_view name;
  Format format;
};

constexpr std::array<Named<CallFormat>, 9> kCallNames = {{
    {"hermes", CallFormat::kHermes},
    {"llama3_json", CallFormat::kLlamaJson},
    {"llama4_json", CallFormat::kLlamaJson},
    {"mistral", CallFormat::kMistral},
    {"deepseek_v3", CallFormat::kDeepSeek},
    {"deepseek_v31", CallFormat::kDeepSeek},
    {"pythonic", CallFormat::kPythonic},
    {"llama4_pythonic", CallFormat::kPythonic},
    {"none", CallFormat::kNone},
}};

constexpr std::array<Named<ReasoningFormat>, 8> kReasoningNames = {{
    {"qwen3", ReasoningFormat::kThink},
    {"deepseek_r1", ReasoningFormat::kThinkOpen},
    {"deepseek_v3", ReasoningFormat::kThink},
    {"glm45", ReasoningFormat::kThink},
    {"ernie45", ReasoningFormat::kThink},
    {"mistral", ReasoningFormat::kMistral},
    {"seed_oss", ReasoningFormat::kSeed},
    {"none", ReasoningFormat::kNone},
}};

template <typename List>
auto find_named(const List& list, std::string_view name)
    -> std::optional<decltype(list.front().format)> {
  for (const auto& entry : list) {
    if (entry.name == name) return entry.format;
  }
  return std::nullopt;
}

template <typename List>
std::string names_of(const List& list) {
  std::string out;
  for (const auto& entry : list) {
    if (!out.empty()) out += ", ";
    out += entry.name;
  }
  return out;
}

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::unique_ptr<OutputParser> make_call_parser(OutputOptions options) {
  switch (options.calls) {
    case CallFormat::kNone:
      return nullptr;
    case CallFormat::kHermes:
      return make_hermes_parser(std::move(options));
    case CallFormat::kLlamaJson:
      return make_llama_json_parser(std::move(options));
    case CallFormat::kMistral:
      return make_mistral_parser(std::move(options));
    case CallFormat::kDeepSeek:
      return make_deepseek_parser(std::move(options));
    case CallFormat::kPythonic:
      return make_pythonic_parser(std::move(options));
  }
  return nullptr;
}

}  // namespace

ReasoningMarkers reasoning_markers(ReasoningFormat format) {
  if (format == ReasoningFormat::kMistral) return {"[THINK]", "[/THINK]"};
  if (format == ReasoningFormat::kSeed) return {"<seed:think>", "</seed:think>"};
  return {"<think>", "</think>"};
}

std::optional<CallFormat> call_format(std::string_view name) {
  return find_named(kCallNames, name);
}

std::optional<ReasoningFormat> reasoning_format(std::string_view name) {
  return find_named(kReasoningNames, name);
}

std::string call_format_names() { return names_of(kCallNames); }
std::string reasoning_format_names() { return names_of(kReasoningNames); }

CallFormat detect_call_format(std::string_view t) {
  if (!holds(t, "tools")) return CallFormat::kNone;
  // Calls as XML within the same marker: another family.
  if (holds(t, "<tool_call>") && !holds(t, "<function=") && !holds(t, "<arg_key>"))
    return CallFormat::kHermes;
  if (holds(t, "[TOOL_CALLS]")) return CallFormat::kMistral;
  if (holds(t, "<｜tool▁call")) return CallFormat::kDeepSeek;
  if (holds(t, "func_name1(params_name1=") || holds(t, "tool_code")) return CallFormat::kPythonic;
  if (holds(t, "<|python_tag|>") || holds(t, "\"parameters\": dictionary of argument name") ||
      (holds(t, "ipython") && holds(t, "<|eot_id|>")))
    return CallFormat::kLlamaJson;
  return CallFormat::kNone;
}

ReasoningFormat detect_reasoning_format(std::string_view t) {
  if (holds(t, "[THINK]")) return ReasoningFormat::kMistral;
  if (holds(t, "<seed:think>")) return ReasoningFormat::kSeed;
  if (holds(t, "<think>") || holds(t, "</think>")) return ReasoningFormat::kThink;
  return ReasoningFormat::kNone;
}

bool needs_special_tokens(CallFormat calls, ReasoningFormat reasoning) {
  return calls == CallFormat::kMistral || calls == CallFormat::kLlamaJson ||
         calls == CallFormat::kDeepSeek || reasoning == ReasoningFormat::kMistral;
}

bool prompt_opens_reasoning(std::string_view prompt, ReasoningFormat format) {
  if (format == ReasoningFormat::kNone) return false;
  const ReasoningMarkers markers = reasoning_markers(format);
  while (!prompt.empty() && is_space(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with(markers.open);
}

std::unique_ptr<OutputParser> make_output_parser(OutputOptions options) {
  const OutputOptions copy = options;
  auto calls = make_call_parser(std::move(options));
  if (copy.reasoning == ReasoningFormat::kNone) return calls;
  return make_reasoning_parser(copy, std::move(calls));
}

}  // namespace pelton::text
