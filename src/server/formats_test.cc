// How answers look: what is told apart in them, that a stream's pieces join to the whole, and that
// everything is JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/json_tree.h"
#include "server/answer_format.h"
#include "server/output_split.h"

namespace pelton::server {
namespace {

AnswerInfo info_with(text::OutputOptions output) {
  AnswerInfo info;
  info.id = "chatcmpl-1";
  info.model = "m";
  info.output = std::move(output);
  info.stop = {"<end>"};
  info.prompt_tokens = 7;
  return info;
}

struct Sse {
  std::string event;
  Json data;
};

std::vector<Sse> events_of(const std::string& stream) {
  std::vector<Sse> out;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    std::string block = stream.substr(at, end - at);
    at = end + 2;
    Sse sse;
    if (block.starts_with("event: ")) {
      const size_t line = block.find('\n');
      sse.event = block.substr(7, line - 7);
      block.erase(0, line + 1);
    }
    EXPECT_TRUE(block.starts_with("data: "));
    if (block == "data: [DONE]") {
      sse.data = "[DONE]";
    } else {
      auto json = Json::parse(block.substr(6));
      EXPECT_TRUE(json.ok()) << block;
      if (json.ok()) sse.data = std::move(json).value();
    }
    out.push_back(std::move(sse));
  }
  return out;
}

struct Cuts {
  size_t first = 0;
  size_t second = std::string::npos;  // none
};

// The stream of `text`, cut at one or two places, that ends with `finish`.
std::string stream_of(AnswerFormat& format, const std::string& text, Cuts cuts, FinishReason finish,
                      int32_t stopped_by = -1) {
  std::string out;
  format.begin(&out);
  TokenEvent event;
  event.tokens = {1};
  event.text = text.substr(0, cuts.first);
  event.usage.cached_tokens = 2;
  format.delta(0, event, &out);
  if (cuts.second != std::string::npos) {
    event.text = text.substr(cuts.first, cuts.second - cuts.first);
    format.delta(0, event, &out);
  }
  event.text = text.substr(cuts.second != std::string::npos ? cuts.second : cuts.first);
  event.finish = finish;
  event.stopped_by = stopped_by;
  format.delta(0, event, &out);
  format.end({.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2}, "", &out);
  return out;
}

std::string text_of(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : std::string();
}

// What a client of the OpenAI API makes of a stream.
Json chat_message(const std::string& stream, std::string* finish) {
  Json message = Json::object();
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
  for (const Sse& sse : events_of(stream)) {
    if (sse.data.is_string() || sse.data["choices"].empty()) continue;
    const Json& choice = sse.data["choices"][0];
    const Json& delta = choice["delta"];
    content += text_of(delta, "content");
    reasoning += text_of(delta, "reasoning_content");
    if (const Json* list = delta.find("tool_calls")) {
      const Json& call = (*list)[0];
      const auto index = static_cast<size_t>(call["index"].as_integer());
      if (index == calls.size()) {
        Json begun = Json::object();
        begun["id"] = call["id"];
        begun["name"] = call["function"]["name"];
        begun["arguments"] = "";
        calls.push_back(begun);
      }
      EXPECT_LT(index, calls.size());
      calls[index]["arguments"] =
          calls[index]["arguments"].as_string() + call["function"]["arguments"].as_string();
    }
    if (choice["finish_reason"].is_string()) *finish = choice["finish_reason"].as_string();
  }
  message["content"] = content;
  message["reasoning"] = reasoning;
  message["calls"] = calls;
  return message;
}

const std::string kAnswer =
    "<think>\nHm 😀.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
    "\"ü\"}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";

text::OutputOptions both() {
  return {.calls = text::CallFormat::kHermes, .reasoning = text::ReasoningFormat::kThink};
}

Json whole(AnswerFormat& format, const std::string& text, FinishReason finish,
           int32_t stopped_by = -1) {
  Choice choice;
  choice.text = text;
  choice.finish = finish;
  choice.stopped_by = stopped_by;
  return *Json::parse(
      format.whole({choice}, {.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2}, ""));
}

TEST(ChatFormat, StreamsJoinToTheWholeAtEveryCut) {
  const auto format = make_chat_format(info_with(both()));
  const Json answer = whole(*format, kAnswer, FinishReason::kStop);
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& message = choice["message"];
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["reasoning_content"], "Hm 😀.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\": \"ü\"}");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  // Where a piece may end: never inside a character.
  std::vector<size_t> places;
  for (size_t at = 0; at <= kAnswer.size(); ++at) {
    if (at == kAnswer.size() || (static_cast<unsigned char>(kAnswer[at]) & 0xC0) != 0x80)
      places.push_back(at);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i; j < std::min(places.size(), i + 12); ++j) {
      std::string finish;
      const auto fresh = make_chat_format(info_with(both()));
      const Cuts cuts{.first = places[i], .second = j == i ? std::string::npos : places[j]};
      const Json joined =
          chat_message(stream_of(*fresh, kAnswer, cuts, FinishReason::kStop), &finish);
      const std::string where = std::to_string(places[i]) + ", " + std::to_string(places[j]);
      EXPECT_EQ(finish, "tool_calls");
      EXPECT_EQ(joined["content"], message["content"]) << where;
      EXPECT_EQ(joined["reasoning"], message["reasoning_content"]) << where;
      ASSERT_EQ(joined["calls"].size(), 2u) << where;
      for (size_t k = 0; k < 2; ++k) {
        const Json& call = message["tool_calls"][k];
        EXPECT_EQ(joined["calls"][k]["id"], call["id"]);
        EXPECT_EQ(joined["calls"][k]["name"], call["function"]["name"]);
        EXPECT_EQ(joined["calls"][k]["arguments"], call["function"]["arguments"]) << where;
      }
    }
  }
}

TEST(ChatFormat, ContentIsNullBesideCallsAndLengthStaysLength) {
  const auto format = make_chat_format(info_with({.calls = text::CallFormat::kHermes}));
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1";
  const Json answer = whole(*format, call, FinishReason::kLength);
  EXPECT_TRUE(answer["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(answer["choices"][0]["message"].contains("reasoning_content"));
  const auto plain = make_chat_format(info_with({}));
  const Json text = whole(*plain, call, FinishReason::kStop);
  EXPECT_EQ(text["choices"][0]["message"]["content"], call);
  EXPECT_FALSE(text["choices"][0]["message"].contains("tool_calls"));
}

TEST(ChatFormat, IdsOfMistralsCallsHaveNineCharacters) {
  const std::string id = tool_call_id("call_", "chatcmpl-1", 0, 0, text::CallFormat::kMistral);
  EXPECT_EQ(id.size(), 9u);
  EXPECT_NE(id, tool_call_id("call_", "chatcmpl-1", 0, 1, text::CallFormat::kMistral));
  EXPECT_TRUE(tool_call_id("call_", "x", 0, 0, text::CallFormat::kHermes).starts_with("call_"));
}

TEST(MessagesFormat, StreamsBlocksThatEqualTheWhole) {
  const auto format = make_messages_format(info_with(both()));
  const Json answer = whole(*format, kAnswer, FinishReason::kStop);
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  EXPECT_TRUE(answer["stop_sequence"].is_null());
  EXPECT_EQ(answer["usage"]["input_tokens"], 5);
  EXPECT_EQ(answer["usage"]["cache_read_input_tokens"], 2);
  ASSERT_EQ(answer["content"].size(), 4u);
  EXPECT_EQ(answer["content"][2]["input"].dump(), "{\"a\":\"ü\"}");
  for (const size_t cut : {size_t{0}, size_t{9}, size_t{30}, size_t{70}, kAnswer.size()}) {
    const auto fresh = make_messages_format(info_with(both()));
    const auto events = events_of(stream_of(*fresh, kAnswer, {.first = cut}, FinishReason::kStop));
    ASSERT_GE(events.size(), 4u);
    EXPECT_EQ(events.front().event, "message_start");
    EXPECT_EQ(events.front().data["message"]["usage"]["input_tokens"], 5);
    EXPECT_EQ(events.back().event, "message_stop");
    EXPECT_EQ(events[events.size() - 2].data["delta"]["stop_reason"], "tool_use");
    EXPECT_EQ(events[events.size() - 2].data["usage"]["output_tokens"], 3);
    std::vector<Json> blocks;
    std::vector<std::string> joined;
    bool open = false;
    for (const Sse& sse : events) {
      EXPECT_EQ(sse.data["type"], sse.event);
      if (sse.event == "content_block_start") {
        EXPECT_FALSE(open);
        open = true;
        blocks.push_back(sse.data["content_block"]);
        joined.emplace_back();
        EXPECT_EQ(sse.data["index"].as_integer(), std::ssize(blocks) - 1);
      } else if (sse.event == "content_block_delta") {
        EXPECT_TRUE(open);
        const Json& delta = sse.data["delta"];
        joined.back() +=
            text_of(delta, "text") + text_of(delta, "thinking") + text_of(delta, "partial_json");
      } else if (sse.event == "content_block_stop") {
        EXPECT_TRUE(open);
        open = false;
      }
    }
    EXPECT_FALSE(open);
    ASSERT_EQ(blocks.size(), 4u) << cut;
    EXPECT_EQ(joined[0], answer["content"][0]["thinking"].as_string());
    EXPECT_EQ(joined[1], answer["content"][1]["text"].as_string());
    EXPECT_EQ(blocks[2]["name"], "f");
    EXPECT_EQ(blocks[2]["id"], answer["content"][2]["id"]);
    EXPECT_EQ(*Json::parse(joined[2]), answer["content"][2]["input"]);
  }
}

TEST(MessagesFormat, ReasonsOfTheEnd) {
  const auto format = make_messages_format(info_with({}));
  EXPECT_EQ(whole(*format, "a", FinishReason::kStop)["stop_reason"], "end_turn");
  EXPECT_EQ(whole(*format, "a", FinishReason::kLength)["stop_reason"], "max_tokens");
  const Json stopped = whole(*format, "a", FinishReason::kStop, 0);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "<end>");
  std::string out;
  format->failed({.status = 503, .message = "no"}, &out);
  const auto events = events_of(out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event, "error");
  EXPECT_EQ(events[0].data["error"]["type"], "overloaded_error");
}

TEST(EmbeddingFormat, IsNormalisedInBothForms) {
  Choice choice;
  choice.embedding = {3.0f, 0.0f, -4.0f};
  const Usage usage{.prompt_tokens = 9, .completion_tokens = 1};
  const Json numbers =
      *Json::parse(make_embedding_format(info_with({}), false)->whole({choice, choice}, usage, ""));
  EXPECT_EQ(numbers["data"].size(), 2u);
  EXPECT_EQ(numbers["data"][1]["index"], 1);
  EXPECT_NEAR(numbers["data"][0]["embedding"][0].as_double(), 0.6, 1e-6);
  EXPECT_NEAR(numbers["data"][0]["embedding"][2].as_double(), -0.8, 1e-6);
  EXPECT_EQ(numbers["usage"]["total_tokens"], 9);
  choice.embedding = {1.0f};
  const Json bytes =
      *Json::parse(make_embedding_format(info_with({}), true)->whole({choice}, usage, ""));
  EXPECT_EQ(bytes["data"][0]["embedding"], "AACAPw==");
  choice.embedding = {0.0f, 0.0f, 0.0f};
  const Json zero =
      *Json::parse(make_embedding_format(info_with({}), true)->whole({choice}, usage, ""));
  EXPECT_EQ(zero["data"][0]["embedding"], "AAAAAAAAAAAAAAAA");
}

}  // namespace
}  // namespace pelton::server
