#include "text/output/output_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json_tree.h"

namespace pelton::text {
namespace {

using Kind = OutputPiece::Kind;

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& p) {
  out << "content '" << p.content << "' reasoning '" << p.reasoning << "'";
  for (const Call& call : p.calls) out << " " << call.name << "(" << call.arguments << ")";
  return out;
}

void take(const OutputPieces& pieces, Parsed* parsed) {
  for (const OutputPiece& piece : pieces) {
    EXPECT_FALSE(piece.text.empty());
    if (piece.kind == Kind::kContent) parsed->content += piece.text;
    if (piece.kind == Kind::kReasoning) parsed->reasoning += piece.text;
    if (piece.kind == Kind::kCallName) {
      EXPECT_EQ(piece.call, std::ssize(parsed->calls)) << "calls are told in order";
      parsed->calls.push_back({piece.text, {}});
    }
    if (piece.kind == Kind::kCallArguments) {
      EXPECT_EQ(piece.call, std::ssize(parsed->calls) - 1) << "arguments follow their name";
      if (!parsed->calls.empty()) parsed->calls.back().arguments += piece.text;
    }
  }
}

Parsed parse(const std::vector<std::string>& parts, const OutputOptions& options) {
  const auto parser = make_output_parser(options);
  Parsed parsed;
  for (const std::string& part : parts) {
    OutputPieces pieces;
    parser->feed(part, &pieces);
    take(pieces, &parsed);
  }
  OutputPieces pieces;
  parser->finish(&pieces);
  take(pieces, &parsed);
  return parsed;
}

// In one piece, in three at every pair of places, and byte by byte.
void expect_parsed(const std::string& text, const OutputOptions& options, const Parsed& expected) {
  EXPECT_EQ(parse({text}, options), expected) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    for (size_t next = cut; next < text.size(); ++next) {
      ASSERT_EQ(
          parse({text.substr(0, cut), text.substr(cut, next - cut), text.substr(next)}, options),
          expected)
          << text << " cut at " << cut << " and " << next;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  ASSERT_EQ(parse(bytes, options), expected) << text << " byte by byte";
}

OutputOptions calls(CallFormat format, bool parallel = true) {
  return {.calls = format, .tools = {"get_weather", "f"}, .parallel_calls = parallel};
}

TEST(Hermes, CallsBetweenMarkers) {
  const OutputOptions o = calls(CallFormat::kHermes);
  expect_parsed("Hello there.\n", o, {"Hello there.\n", "", {}});
  expect_parsed("", o, {});
  expect_parsed(
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln "
      "😀\"}}\n</tool_call>",
      o, {"", "", {{"get_weather", "{\"city\": \"Köln 😀\"}"}}});
  expect_parsed(
      "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
      "{\"arguments\": {\"a\": [1, {\"b\": \"}</tool_call>\"}]}, \"name\": \"g\"}\n</tool_call>\n"
      "Done.",
      o,
      {"Let me see.Done.", "", {{"f", "{}"}, {"g", "{\"a\": [1, {\"b\": \"}</tool_call>\"}]}"}}});
  // Arguments as text, none, null; a name with escapes.
  expect_parsed("<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>", o,
                {"", "", {{"f", "{\"a\": 1}"}}});
  expect_parsed("<tool_call>{\"name\":\"f\"}</tool_call>", o, {"", "", {{"f", "{}"}}});
  expect_parsed("<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", o,
                {"", "", {{"f", "{}"}}});
  expect_parsed("<tool_call>{\"name\":\"\\u0066\",\"x\":[1,\"}\"],\"arguments\":{\"n\":null}}", o,
                {"", "", {{"f", "{\"n\":null}"}}});
}

TEST(Hermes, WhatIsNoCallStaysContent) {
  const OutputOptions o = calls(CallFormat::kHermes);
  for (const std::string text :
       {"a < b <tool <tool_cal", "<tool_call>", "<tool_call>  {", "<tool_call>not json</tool_call>",
        "<tool_call>{\"nam", "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>",
        "x <tool_call>[{\"name\":\"f\"}]</tool_call>", "<tool_call>{}</tool_call>"})
    EXPECT_TRUE(parse({text}, o).calls.empty()) << text;
  expect_parsed("<tool_call>not json</tool_call> ok", o,
                {"<tool_call>not json</tool_call> ok", "", {}});
  expect_parsed("a <b> <tool_cal", o, {"a <b> <tool_cal", "", {}});
  expect_parsed("<tool_call>{\"nam", o, {"<tool_call>{\"nam", "", {}});
  expect_parsed("<tool_call>{\"arguments\":{}}</tool_call>", o,
                {"<tool_call>{\"arguments\":{}}</tool_call>", "", {}});
  expect_parsed("\n\n " + std::string(200, '\n') + "x \n", o,
                {"\n\n " + std::string(200, '\n') + "x \n", "", {}});
}

TEST(Hermes, UnfinishedAndBrokenCallsKeepWhatCame) {
  const OutputOptions o = calls(CallFormat::kHermes);
  expect_parsed("<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"Par", o,
                {"", "", {{"f", "{\"city\": \"Par"}}});
  expect_parsed("<tool_call>{\"name\": \"f\", \"argu", o, {"", "", {{"f", ""}}});
  // A bracket too few, and then another call.
  expect_parsed(
      "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}</tool_call><tool_call>{\"name\":\"g\","
      "\"arguments\":{}}</tool_call>",
      o, {"", "", {{"f", "{\"a\":1}"}, {"g", "{}"}}});
  expect_parsed("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1</tool_call> x", o,
                {"x", "", {{"f", "{\"a\":1"}}});
}

TEST(Hermes, OneCallWhenNotParallel) {
  expect_parsed(
      "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>\n<tool_call>{\"name\":\"g\","
      "\"arguments\":{\"b\":1}}</tool_call>",
      calls(CallFormat::kHermes, false), {"", "", {{"f", "{\"a\":1}"}}});
}

TEST(LlamaJson, TheAnswerIsTheCall) {
  const OutputOptions o = calls(CallFormat::kLlamaJson);
  expect_parsed("{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}", o,
                {"", "", {{"get_weather", "{\"city\": \"Oslo\"}"}}});
  expect_parsed(
      "\n<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"f\","
      "\"arguments\":{\"a\":2}}",
      o, {"", "", {{"f", "{}"}, {"f", "{\"a\":2}"}}});
  expect_parsed("{\"type\": \"function\", \"parameters\": {\"a\": 1}, \"name\": \"f\"}", o,
                {"", "", {{"f", "{\"a\": 1}"}}});
  // JSON that names no tool, text, text after JSON.
  for (const std::string text :
       {"{\"name\": \"Bob\", \"age\": 5}", " {\"a\": 1}", "{", "Hello {\"name\": \"f\"}", "  ",
        "<|python", "{\"name\": \"f", "[1]", "{\"name\"}"})
    expect_parsed(text, o, {text, "", {}});
  expect_parsed("{\"name\": \"f\", \"parameters\": {}} and {", o, {"and {", "", {{"f", "{}"}}});
}

TEST(Mistral, ListsAndNamedCalls) {
  const OutputOptions o = calls(CallFormat::kMistral);
  expect_parsed(
      "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"name\": \"g\", "
      "\"arguments\": {}}]",
      o, {"", "", {{"f", "{\"a\": \"]\"}"}, {"g", "{}"}}});
  expect_parsed("Sure.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{\"b\": 2}", o,
                {"Sure.", "", {{"f", "{\"a\": 1}"}, {"g", "{\"b\": 2}"}}});
  expect_parsed("[TOOL_CALLS]f[CALL_ID]abc123xyz[ARGS]{\"a\": 1}", o,
                {"", "", {{"f", "{\"a\": 1}"}}});
  expect_parsed("[TOOL_CALLS] {\"name\": \"f\", \"arguments\": {}}", o, {"", "", {{"f", "{}"}}});
  for (const std::string text : {"[TOOL_CALLS]", "[TOOL_CALLS]f", "[TOOL_CALLS]f[AR", "[TOOL_CAL",
                                 "[TOOL_CALLS]f g", "[TOOL_CALLS][5]", "[TOOL_CALLS]["})
    expect_parsed(text, o, {text, "", {}});
  expect_parsed("[TOOL_CALLS]f{\"a\": [1", o, {"", "", {{"f", "{\"a\": [1"}}});
}

TEST(DeepSeek, BothSpellings) {
  const OutputOptions o = calls(CallFormat::kDeepSeek);
  const std::string begin = "<｜tool▁calls▁begin｜>";
  const std::string call = "<｜tool▁call▁begin｜>";
  const std::string sep = "<｜tool▁sep｜>";
  const std::string end = "<｜tool▁call▁end｜>";
  const std::string all = "<｜tool▁calls▁end｜>";
  expect_parsed("Yes." + begin + call + "function" + sep + "f\n```json\n{\"a\": \"```\"}\n```" +
                    end + "\n" + call + "function" + sep + "g\n```json\n{}\n```" + end + all,
                o, {"Yes.", "", {{"f", "{\"a\": \"```\"}"}, {"g", "{}"}}});
  expect_parsed(
      begin + call + "f" + sep + "{\"a\": 1}" + end + call + "g" + sep + "{\"b\":2}" + end + all, o,
      {"", "", {{"f", "{\"a\": 1}"}, {"g", "{\"b\":2}"}}});
  expect_parsed(call + "function" + sep + "f\n```json\n{\"a\": ", o, {"", "", {{"f", "{\"a\": "}}});
  expect_parsed(call + "never ending", o, {call + "never ending", "", {}});
  expect_parsed(call + "function" + sep, o, {call + "function" + sep, "", {}});
  expect_parsed(call + std::string(300, 'x') + sep + "{}", o,
                {call + std::string(300, 'x') + sep + "{}", "", {}});
}

TEST(Pythonic, ListsOfCalls) {
  const OutputOptions o = calls(CallFormat::kPythonic);
  expect_parsed("[get_weather(city='Köln', days=3, metric=True)]", o,
                {"", "", {{"get_weather", "{\"city\":\"Köln\",\"days\":3,\"metric\":true}"}}});
  expect_parsed("[f(), f(a=[1, -2.5, (3,), None,], b={'k': \"it's \\\"q\\\"\\n\\x41\\u00e9\", })]",
                o,
                {"",
                 "",
                 {{"f", "{}"},
                  {"f", "{\"a\":[1,-2.5,[3],null],\"b\":{\"k\":\"it's \\\"q\\\"\\u000aAé\"}}"}}});
  expect_parsed("```tool_code\n[f(a=1)]\n```", o, {"", "", {{"f", "{\"a\":1}"}}});
  for (const std::string text : {"[1, 2]", "[f]", "[f(1)]", "[other(a=1)]", "f(a=1)", "[", "  [f",
                                 "[f(a", "```python\nx\n```", "Here: [f(a=1)]", "``", "[f (x"})
    expect_parsed(text, o, {text, "", {}});
  // Broken behind its name: what came stands, the rest is text.
  expect_parsed("[f(a=1, b=x)]", o, {")]", "", {{"f", "{\"a\":1,\"b\":"}}});
  expect_parsed("[f(a='x", o, {"", "", {{"f", "{\"a\":\"x"}}});
}

TEST(Pythonic, ArgumentsAreJson) {
  const OutputOptions o = calls(CallFormat::kPythonic);
  for (const std::string value :
       {"0", "-1", "1_000", ".5", "1.", "1e5", "+3", "'a\\\\b'", "\"\\U0001F600\"", "{}", "[]",
        "()", "{'a': {'b': [True, False]}}", "'\t'", "'\\ud800'", "'\\q'"}) {
    const Parsed parsed = parse({"[f(a=" + value + ")]"}, o);
    ASSERT_EQ(parsed.calls.size(), 1u) << value;
    EXPECT_TRUE(Json::parse(parsed.calls[0].arguments).ok())
        << value << " gave " << parsed.calls[0].arguments;
  }
}

TEST(Reasoning, IsToldApart) {
  OutputOptions o{.reasoning = ReasoningFormat::kThink};
  expect_parsed("<think>\nLet me 😀 think.\n</think>\n\nThe answer.", o,
                {"The answer.", "Let me 😀 think.", {}});
  expect_parsed("Plain </think> text <think>", o, {"Plain </think> text <think>", "", {}});
  expect_parsed(" <thin", o, {" <thin", "", {}});
  expect_parsed("<think>only", o, {"", "only", {}});
  expect_parsed("<think>a </thi", o, {"", "a </thi", {}});
  expect_parsed("<think>\n\n</think>\n\nHi", o, {"Hi", "", {}});
  o.reasoning_open = true;
  expect_parsed("Hm.\n</think>Yes \n", o, {"Yes \n", "Hm.", {}});
  expect_parsed("<think>Hm.</think>Yes", o, {"Yes", "Hm.", {}});
  expect_parsed("never closed ", o, {"", "never closed ", {}});
  expect_parsed("Hm</think>", {.reasoning = ReasoningFormat::kThinkOpen}, {"", "Hm", {}});
  expect_parsed("[THINK]a[/THINK]b", {.reasoning = ReasoningFormat::kMistral}, {"b", "a", {}});
}

TEST(Reasoning, CallsComeAfterIt) {
  OutputOptions o = calls(CallFormat::kHermes);
  o.reasoning = ReasoningFormat::kThink;
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  expect_parsed("<think>I could " + call + "</think>\n" + call, o,
                {"", "I could " + call, {{"f", "{}"}}});
  expect_parsed("No thought. <tool_ca", o, {"No thought. <tool_ca", "", {}});
}

TEST(Formats, HaveVllmsNamesAndAreDetected) {
  EXPECT_EQ(call_format("hermes"), CallFormat::kHermes);
  EXPECT_EQ(call_format("llama3_json"), CallFormat::kLlamaJson);
  EXPECT_FALSE(call_format("nothing"));
  EXPECT_EQ(reasoning_format("deepseek_r1"), ReasoningFormat::kThinkOpen);
  EXPECT_EQ(detect_call_format("{% if tools %}<tool_call>{% endif %}"), CallFormat::kHermes);
  EXPECT_EQ(detect_call_format("{% if tools %}<tool_call><function={% endif %}"),
            CallFormat::kNone);
  EXPECT_EQ(detect_call_format("{{ messages }}"), CallFormat::kNone);
  EXPECT_EQ(detect_call_format("tools [TOOL_CALLS]"), CallFormat::kMistral);
  EXPECT_EQ(detect_reasoning_format("x</think>"), ReasoningFormat::kThink);
  EXPECT_TRUE(prompt_opens_reasoning("assistant\n<think>\n", ReasoningFormat::kThink));
  EXPECT_FALSE(prompt_opens_reasoning("<think>\n\n</think>\n\n", ReasoningFormat::kThink));
  EXPECT_EQ(make_output_parser({}), nullptr);
}

}  // namespace
}  // namespace pelton::text
