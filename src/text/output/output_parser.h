// What a model's text means: reasoning, calls of tools, and the rest, told apart while it arrives.
// A parser is a small state machine: however the text is cut into pieces, the joined outcome is the
// same, and nothing that was given out is ever taken back. Text that only looks like a call, or is
// no well-formed one, stays content; a call whose name was told keeps the arguments that came.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::text {

struct OutputPiece {
  enum class Kind : uint8_t { kContent, kReasoning, kCallName, kCallArguments };
  Kind kind = Kind::kContent;
  int32_t call = -1;  // of a call: its number, from 0 on
  std::string text;   // a name is whole; everything else is joined
};
using OutputPieces = std::vector<OutputPiece>;

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends what `text` makes certain.
  virtual void feed(std::string_view text, OutputPieces* out) = 0;
  // No more text comes: appends what was held back. Called once, last.
  virtual void finish(OutputPieces* out) = 0;
};

// How models spell calls.
enum class CallFormat : uint8_t {
  kNone,
  kHermes,     // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen2.5, Qwen3
  kLlamaJson,  // the answer is {"name": ..., "parameters": {...}}, after <|python_tag|> or not
  kMistral,    // [TOOL_CALLS][{...}, ...] or [TOOL_CALLS]name[ARGS]{...}
  kDeepSeek,   // V3, R1 and V3.1
  kPythonic,   // the answer is [name(key=value), ...]: Llama 3.2, Gemma
};

// Where reasoning stands in an answer.
enum class ReasoningFormat : uint8_t {
  kNone,
  kThink,      // <think> ... </think>
  kThinkOpen,  // the same, begun from the first character on (DeepSeek R1)
  kMistral,    // [THINK] ... [/THINK]
  kSeed,       // <seed:think> ... </seed:think>
};

// By the names that vLLM gives them ("hermes", "deepseek_r1", ...); "none" is kNone.
std::optional<CallFormat> call_format(std::string_view name);
std::optional<ReasoningFormat> reasoning_format(std::string_view name);
std::string call_format_names();  // for messages: "hermes, llama3_json, ..."
std::string reasoning_format_names();
// What a chat template makes its model write.
CallFormat detect_call_format(std::string_view chat_template);
ReasoningFormat detect_reasoning_format(std::string_view chat_template);
// Markers that are control tokens in the vocabularies of their models: the text must hold them.
bool needs_special_tokens(CallFormat calls, ReasoningFormat reasoning);
// Whether a prompt ends inside of reasoning, so that the answer begins there.
bool prompt_opens_reasoning(std::string_view prompt, ReasoningFormat format);

struct OutputOptions {
  CallFormat calls = CallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool reasoning_open = false;       // the prompt has opened it
  std::vector<std::string> tools{};  // where only the name tells a call from JSON; empty = any name
  bool parallel_calls = true;        // false: calls after the first are left out
};

// Null when there is nothing to tell apart.
std::unique_ptr<OutputParser> make_output_parser(OutputOptions options);

}  // namespace pelton::text
