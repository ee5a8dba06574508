#include "server/fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/utf8.h"

namespace pelton::server {
namespace {

std::optional<ApiError> chat(const std::string& body, ApiRequest* out = nullptr) {
  ApiRequest request;
  auto error = read_fields(body, chat_fields(), &request);
  if (out != nullptr) *out = std::move(request);
  return error;
}

std::optional<ApiError> with(const std::string& more) {
  return chat(R"({"messages":[{"role":"user","content":"hi"}],)" + more + "}");
}

std::string long_list(size_t count, const std::string& item) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) out += (i > 0 ? "," : "") + item;
  return out + "]";
}

std::string biases(int count) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) out += fmt::format("{}\"{}\":1", i > 0 ? "," : "", i);
  return out + "}";
}

TEST(Fields, ReadsAConversation) {
  ApiRequest request;
  const auto error = chat(
      R"({"model":"m","messages":[{"role":"developer","content":[{"type":"text","text":"a"},
          {"type":"text","text":"b"}]},{"role":"user","content":"é","name":"x"}],
          "temperature":0.5,"top_k":7,"min_p":0.1,"n":2,"seed":18446744073709551615,"stop":["x","yy"],
          "logit_bias":{"5":-100,"7":1.5},"stream":true,"stream_options":{"include_usage":true},
          "max_completion_tokens":9,"max_tokens":null,"logprobs":true,"top_logprobs":3,"user":"u"})",
      &request);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"system","content":"a\nb"},{"role":"user","content":"é","name":"x"}])");
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.n, 2);
  EXPECT_EQ(request.sampling.seed, 18446744073709551615ull);
  EXPECT_THAT(request.sampling.stop, testing::ElementsAre("x", "yy"));
  EXPECT_THAT(request.sampling.logit_bias,
              testing::ElementsAre(testing::Pair(5, -100.0f), testing::Pair(7, 1.5f)));
  EXPECT_TRUE(request.stream && request.include_usage && request.want_logprobs);
  EXPECT_EQ(request.max_completion_tokens, 9);
  EXPECT_FALSE(request.max_tokens);
}

TEST(Fields, PromptsComeInFourForms) {
  const auto prompts = [](const std::string& prompt) {
    ApiRequest request;
    const auto error = read_fields(R"({"prompt":)" + prompt + "}", completion_fields(), &request);
    return error ? -1 : static_cast<int>(request.prompts.size());
  };
  EXPECT_EQ(prompts(R"("a")"), 1);
  EXPECT_EQ(prompts(R"(["a","b"])"), 2);
  EXPECT_EQ(prompts("[1,2,3]"), 1);
  EXPECT_EQ(prompts("[[1],[2,3]]"), 2);
  for (const char* bad : {"[]", "[[]]", "5", "[1,\"a\"]", "[\"a\",1]", "[-1]", "[1.5]", "{}",
                          "[99999999999]", "[[\"a\"]]", "true"})
    EXPECT_EQ(prompts(bad), -1) << bad;
  EXPECT_EQ(prompts(long_list(128, "\"a\"")), 128);
  EXPECT_EQ(prompts(long_list(129, "\"a\"")), -1);
}

struct Refusal {
  std::string body;
  const char* param;
};

TEST(Fields, NamesTheFieldThatIsWrong) {
  const std::vector<Refusal> cases = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"1")", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.0001)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("top_k":99999999999)", "top_k"},
      {R"("top_k":18446744073709551615)", "top_k"},
      {R"("n":0)", "n"},
      {R"("n":17)", "n"},
      {R"("n":1e300)", "n"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":2147483648)", "max_tokens"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("stream":"yes")", "stream"},
      {R"("stream":1)", "stream"},
      {R"("stop":5)", "stop"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop[1]"},
      {R"("stop":[5])", "stop[0]"},
      {R"("stop":)" + long_list(17, "\"a\""), "stop"},
      {R"("stop":")" + std::string(257, 'a') + "\"", "stop"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"1":"1"})", "logit_bias"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":"1")", "seed"},
      {R"("top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":3)", "logprobs"},
      {R"("stream_options":{"include_usage":1})", "stream_options"},
      {R"("stream_options":{"x":true})", "stream_options"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("tools":[{"type":"function"}])", "tools[0]"},
      {R"("tools":[{"type":"web_search"}])", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":5}}])",
       "tools[0].function.parameters"},
      {R"("tools":5)", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])", "tools[0].function"},
      {R"("stop_token_ids":)" + long_list(257, "1"), "stop_token_ids"},
      {R"("logit_bias":)" + biases(1025), "logit_bias"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("tool_choice":"sometimes")", "tool_choice"},
      {R"("parallel_tool_calls":1)", "parallel_tool_calls"},
      {R"("functions":[{}])", "functions"},
      {R"("function_call":"auto")", "function_call"},
      {R"("chat_template":"x")", "chat_template"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"pad_token":"x"})", "chat_template_kwargs"},
      {R"("guided_json":{"a":1})", "guided_json"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("unheard_of":1)", "unheard_of"},
      {R"("unheard_of":null)", "unheard_of"},
      {R"("timeout":0)", "timeout"},
      {R"("priority":1001)", "priority"},
      {R"("cache_salt":")" + std::string(257, 'a') + "\"", "cache_salt"},
  };
  for (const Refusal& c : cases) {
    const auto error = with(c.body);
    ASSERT_TRUE(error) << c.body;
    EXPECT_EQ(error->status, 400) << c.body;
    EXPECT_EQ(error->param, c.param) << c.body;
  }
}

TEST(Fields, EdgesAreInside) {
  for (const char* good :
       {R"("temperature":0)", R"("n":16)", R"("top_k":3.0)", R"("top_logprobs":20)",
        R"("max_tokens":0)", R"("max_tokens":2147483647)", R"("tools":[])", R"("seed":-1)",
        R"("store":false)", R"("response_format":{"type":"text"})", R"("tools":null)",
        R"("tools":[{"type":"function","function":{"name":"f","strict":false}}])", R"("stop":null)",
        R"("logit_bias":{})", R"("stream_options":{})"}) {
    const auto error = with(good);
    EXPECT_FALSE(error) << good << ": " << error->message;
  }
  EXPECT_FALSE(with(R"("stop":)" + long_list(16, "\"a\"")));
  EXPECT_FALSE(with(R"("stop_token_ids":)" + long_list(256, "1")));
  EXPECT_FALSE(with(R"("logit_bias":)" + biases(1024)));
  EXPECT_FALSE(with(R"("stop":")" + std::string(256, 'a') + "\""));
}

// A valid body of a route with one field said so.
std::string body_with(std::span<const Field> fields, const Field& said, const std::string& value) {
  std::string body = "{\"" + std::string(said.name) + "\":" + value;
  for (const Field& field : fields) {
    if (!field.required || field.name == said.name) continue;
    body += ",\"" + std::string(field.name) + "\":";
    body += field.name == "messages"     ? R"([{"role":"user","content":"a"}])"
            : field.name == "max_tokens" ? "1"
            : field.name == "tokens"     ? "[1]"
                                         : "\"a\"";
  }
  return body + "}";
}

TEST(Fields, EveryRangeOfEveryRouteIsSharp) {
  int numbers = 0;
  for (const Route& route : routes()) {
    for (const Field& field : route.fields) {
      if (field.read != nullptr || field.high == 0) continue;
      const bool text = std::holds_alternative<std::string ApiRequest::*>(field.target);
      if (text && field.high > 1e6) continue;
      const auto refused = [&](double value) {
        const std::string said = text ? "\"" + std::string(static_cast<size_t>(value), 'a') + "\""
                                      : fmt::format("{:.17g}", value);
        ApiRequest request;
        const auto error =
            read_fields(body_with(route.fields, field, said), route.fields, &request);
        if (error) {
          EXPECT_EQ(error->param, field.name);
        }
        return error.has_value();
      };
      const std::string where = std::string(route.path) + " " + std::string(field.name);
      EXPECT_EQ(refused(field.low), field.low_open) << where;
      EXPECT_FALSE(refused(field.high)) << where;
      EXPECT_TRUE(refused(field.high + std::max(1.0, field.high * 1e-9))) << where;
      if (!text) {
        EXPECT_TRUE(refused(field.low - 1)) << where;
      }
      ++numbers;
    }
  }
  EXPECT_GT(numbers, 50);
}

TEST(Fields, ToolsHaveTheirLimits) {
  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  EXPECT_FALSE(with(R"("tools":)" + long_list(256, tool)));
  const auto many = with(R"("tools":)" + long_list(257, tool));
  ASSERT_TRUE(many);
  EXPECT_EQ(many->param, "tools");
  const auto described = [&](size_t bytes) {
    const std::string frame = R"([{"type":"function","function":{"name":"f","description":""}}])";
    std::string one = frame;
    one.insert(one.find("\"\"") + 1, std::string(bytes - frame.size(), 'd'));
    return with(R"("tools":)" + one);
  };
  EXPECT_FALSE(described(1u << 20));
  const auto large = described((1u << 20) + 1);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->param, "tools");
}

TEST(Fields, RefusesBodiesThatAreNoObject) {
  for (const std::string body :
       {"", "[]", "null", "5", "{", R"({"messages":1,})", R"({"messages":[],"messages":[]})",
        "\xEF\xBB\xBF{}", "{\"user\":\"\xC0\x80\"}", "{\"user\":\"\xED\xA0\x80\"}",
        "{\"user\":\"\xB0\xA1\"}", R"({"seed":1e999})", R"({"temperature":NaN})"}) {
    const auto error = chat(body);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status, 400);
    EXPECT_TRUE(is_valid_utf8(error->json()));
  }
  const auto deep = chat(std::string(100'000, '[') + std::string(100'000, ']'));
  ASSERT_TRUE(deep);
  EXPECT_EQ(deep->status, 400);
}

TEST(Fields, RefusesBrokenConversations) {
  for (const char* messages :
       {"null", "[]", "{}", "\"hi\"", "[5]", "[{}]", R"([{"role":"user"}])",
        R"([{"role":"user","content":null}])", R"([{"role":"user","content":[]}])",
        R"([{"role":"user","content":5}])", R"([{"role":"root","content":"x"}])",
        R"([{"role":5,"content":"x"}])", R"([{"content":"x"}])",
        R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":"x","extra":1}])",
        R"([{"role":"user","content":"x","name":5}])",
        R"([{"role":"assistant","tool_calls":[{}]}])",
        R"([{"role":"assistant","tool_calls":{"a":1}}])"}) {
    const auto error = chat(std::string(R"({"messages":)") + messages + "}");
    ASSERT_TRUE(error) << messages;
    EXPECT_EQ(error->param, "messages") << messages;
  }
  EXPECT_FALSE(chat(R"({"messages":[{"role":"user","content":""}]})"));
  EXPECT_FALSE(chat(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
          "function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"x"}]})"));
}

std::optional<ApiError> turns(const std::string& body, ApiRequest* request) {
  return read_fields(body, messages_fields(), request);
}

TEST(Turns, BecomeMessages) {
  ApiRequest request;
  const auto error = turns(
      R"({"max_tokens":5,"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],
          "messages":[{"role":"user","content":"q"},
            {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},
              {"type":"text","text":"see"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":
              [{"type":"text","text":"42"}]},{"type":"text","text":"go on","cache_control":{}}]}],
          "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
          "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
          "thinking":{"type":"enabled","budget_tokens":1024},"stop_sequences":["x"]})",
      &request);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(request.system, "a\nb");
  EXPECT_EQ(request.messages.dump(),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"see",)"
            R"("reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":)"
            R"({"name":"f","arguments":{"a":1}}}]},{"role":"tool","tool_call_id":"t1",)"
            R"("content":"42"},{"role":"user","content":"go on"}])");
  EXPECT_EQ(request.tools.dump(), R"([{"type":"function","function":{"name":"f","description":"d",)"
                                  R"("parameters":{"type":"object"}}}])");
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.template_kwargs.dump(), R"({"enable_thinking":true})");
  EXPECT_THAT(request.sampling.stop, testing::ElementsAre("x"));
}

TEST(Turns, BrokenOnesAreRefused) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {R"({"messages":[{"role":"user","content":"q"}]})", "max_tokens"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"q"}]})", "max_tokens"},
      {R"({"max_tokens":1,"messages":[]})", "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"system","content":"q"}]})", "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"assistant","content":"q"}]})", "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})", "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_use"}]}]})",
       "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"redacted_thinking"}]}]})",
       "messages"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],"tool_choice":{"type":"any"}})",
       "tool_choice"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],"tools":[{"name":"f"}]})",
       "tools"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],"tools":[{"name":"f","strict":true,"input_schema":{}}]})",
       "tools"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],"thinking":true})",
       "thinking"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],"system":5})", "system"}};
  for (const auto& [body, param] : cases) {
    ApiRequest request;
    const auto error = turns(body, &request);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body;
    EXPECT_NE(error->json(ErrorStyle::kAnthropic).find("\"invalid_request_error\""),
              std::string::npos);
  }
}

TEST(Fields, ManyKeysAreRefusedBeforeTheyAreRead) {
  std::string body = R"({"user":{"a":0)";
  for (int i = 0; i < 100'001; ++i) body += ",\"k" + std::to_string(i) + "\":1";
  const auto error = chat(body + "}}");
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("100000 keys"), std::string::npos) << error->message;
  // Colons within texts are none.
  EXPECT_FALSE(with(R"("user":")" + std::string(200'000, ':') + "\""));
}

TEST(Openapi, IsJsonAndHoldsEveryField) {
  const auto document = *Json::parse(openapi_document("1.2.3"));
  EXPECT_EQ(document["info"]["version"], "1.2.3");
  for (const Route& route : routes()) {
    const auto& path = document["paths"].at(std::string(route.path));
    const auto& operation = path.at(route.method == "GET" ? "get" : "post");
    EXPECT_TRUE(operation["responses"].contains("200"));
    if (route.fields.empty()) continue;
    const auto& schema = operation["requestBody"]["content"]["application/json"]["schema"];
    EXPECT_EQ(schema["properties"].size(), route.fields.size());
    for (const Field& field : route.fields)
      EXPECT_TRUE(schema["properties"].contains(std::string(field.name))) << field.name;
  }
}

}  // namespace
}  // namespace pelton::server
