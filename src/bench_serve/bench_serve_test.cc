#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench_serve/answer_reader.h"
#include "bench_serve/arrivals.h"
#include "bench_serve/draws.h"
#include "bench_serve/sse_reader.h"
#include "bench_serve/summary.h"
#include "bench_serve/target.h"
#include "bench_serve/workload.h"

namespace pelton::bench_serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- arrivals and draws

TEST(Arrivals, PoissonHasItsRateAndItsSpread) {
  const auto times = arrival_times({.request_rate = 50, .seed = 3}, 20000);
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(*times));
  double sum = 0;
  double squares = 0;
  for (size_t i = 1; i < times->size(); ++i) {
    const double gap = (*times)[i] - (*times)[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(times->size() - 1);
  EXPECT_NEAR(sum / n, 0.02, 0.02 * 0.03);
  const double variance = squares / n - (sum / n) * (sum / n);
  EXPECT_NEAR(std::sqrt(variance) / (sum / n), 1, 0.05);  // exponential: deviation = mean
}

TEST(Arrivals, BurstinessKeepsTheRateAndChangesTheSpread) {
  for (const double shape : {0.25, 4.0}) {
    const auto times = arrival_times({.request_rate = 10, .burstiness = shape, .seed = 1}, 20000);
    ASSERT_TRUE(times.ok());
    const auto n = static_cast<double>(times->size() - 1);
    const double mean = times->back() / n;
    EXPECT_NEAR(mean, 0.1, 0.1 * 0.06) << shape;
    double squares = 0;
    for (size_t i = 1; i < times->size(); ++i)
      squares += std::pow((*times)[i] - (*times)[i - 1] - mean, 2);
    EXPECT_NEAR(std::sqrt(squares / n) / mean, 1 / std::sqrt(shape), 0.1 / std::sqrt(shape));
  }
}

TEST(Arrivals, SameSeedSameTimesOtherSeedOthers) {
  const auto a = arrival_times({.request_rate = 5, .seed = 1}, 10);
  const auto b = arrival_times({.request_rate = 5, .seed = 1}, 10);
  const auto c = arrival_times({.request_rate = 5, .seed = 2}, 10);
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *c);
  EXPECT_THAT(*arrival_times({}, 3), ElementsAre(0, 0, 0));
}

TEST(Arrivals, RefusesWhatIsNoRate) {
  EXPECT_FALSE(arrival_times({.request_rate = -1}, 1).ok());
  EXPECT_FALSE(arrival_times({.request_rate = NAN}, 1).ok());
  EXPECT_FALSE(arrival_times({.request_rate = INFINITY}, 1).ok());
  EXPECT_FALSE(arrival_times({.request_rate = 1, .burstiness = 0}, 1).ok());
}

// ---- workload

double mean_output(const std::vector<Prompt>& prompts) {
  double sum = 0;
  for (const Prompt& p : prompts) sum += p.max_tokens;
  return sum / static_cast<double>(prompts.size());
}

TEST(Workload, RandomHasTheLengthsThatWereAskedFor) {
  WorkloadOptions options{.count = 20, .input_len = 7, .output_len = 9, .first_id = 100};
  options.last_id = 110;
  const auto prompts = make_workload(options);
  ASSERT_TRUE(prompts.ok());
  for (const Prompt& p : *prompts) {
    EXPECT_EQ(p.ids.size(), 7u);
    EXPECT_EQ(p.planned_tokens, 7);
    EXPECT_EQ(p.max_tokens, 9);
    EXPECT_TRUE(std::ranges::all_of(p.ids, [](int32_t id) { return id >= 100 && id <= 110; }));
  }
}

TEST(Workload, TextHasAWordAToken) {
  const auto prompts = make_workload({.count = 3, .input_len = 12});
  for (const Prompt& p : *prompts) {
    EXPECT_TRUE(p.ids.empty());
    EXPECT_EQ(std::ranges::count(p.text, ' '), 11);
  }
  EXPECT_NE((*prompts)[0].text, (*prompts)[1].text);
}

TEST(Workload, ExponentialAnswersHaveTheirMeanAndTheirCap) {
  WorkloadOptions options{.dataset = "exponential", .count = 20000, .input_len = 1};
  options.output_len = 256;
  options.output_cap = 1536;
  const auto prompts = make_workload(options);
  ASSERT_TRUE(prompts.ok());
  // The cap takes exp(-6) of the mean.
  EXPECT_NEAR(mean_output(*prompts), 256 * (1 - std::exp(-6.0)), 8);
  const auto longest = std::ranges::max_element(*prompts, {}, &Prompt::max_tokens)->max_tokens;
  EXPECT_EQ(longest, 1536);
  EXPECT_GE(std::ranges::min_element(*prompts, {}, &Prompt::max_tokens)->max_tokens, 1);
}

TEST(Workload, ChatsVaryInBothLengths) {
  WorkloadOptions options{.dataset = "sharegpt", .count = 20000, .input_len = 200};
  options.output_len = 180;
  const auto prompts = make_workload(options);
  double input = 0;
  for (const Prompt& p : *prompts) input += p.planned_tokens;
  EXPECT_NEAR(input / 20000, 200, 25);  // the longest are cut
  EXPECT_NEAR(mean_output(*prompts), 180, 15);
}

TEST(Workload, SharedPrefixesAreSharedByTheirShare) {
  WorkloadOptions options{.count = 2000, .input_len = 4};
  options.prefix_len = 8;
  options.prefix_share = 0.9;
  options.prefix_count = 2;
  options.first_id = 1;
  options.last_id = 50000;
  const auto prompts = make_workload(options);
  std::map<std::vector<int32_t>, int> prefixes;
  int shared = 0;
  for (const Prompt& p : *prompts) {
    ASSERT_EQ(p.ids.size(), 12u);
    shared += p.shares_prefix ? 1 : 0;
    if (p.shares_prefix) ++prefixes[{p.ids.begin(), p.ids.begin() + 8}];
  }
  EXPECT_NEAR(shared, 1800, 60);
  EXPECT_EQ(prefixes.size(), 2u);
  // Lengths do not depend on the prefixes.
  options.dataset = "exponential";
  const auto with = make_workload(options);
  options.prefix_len = 0;
  const auto without = make_workload(options);
  for (size_t i = 0; i < with->size(); ++i)
    EXPECT_EQ((*with)[i].max_tokens, (*without)[i].max_tokens);
}

TEST(Workload, NamesTheOptionThatIsWrong) {
  const auto refusal = [](WorkloadOptions options) {
    return make_workload(options).status().message();
  };
  EXPECT_THAT(refusal({.count = 0}), HasSubstr("--num-prompts"));
  EXPECT_THAT(refusal({.input_len = 0}), HasSubstr("--input-len"));
  EXPECT_THAT(refusal({.output_len = -1}), HasSubstr("--output-len"));
  EXPECT_THAT(refusal({.prefix_len = -1}), HasSubstr("--prefix-len"));
  EXPECT_THAT(refusal({.prefix_share = NAN}), HasSubstr("--prefix-share"));
}

TEST(Dataset, ReadsLinesAndConversations) {
  const WorkloadOptions options{.count = 3, .output_len = 5};
  const auto lines =
      read_dataset("{\"prompt\":\"a\",\"output_len\":7}\n\n{\"prompt\":\"b\"}\r\n", "f", options);
  ASSERT_TRUE(lines.ok()) << lines.status().to_string();
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_EQ((*lines)[0].max_tokens, 7);
  EXPECT_EQ((*lines)[1].max_tokens, 5);
  EXPECT_EQ((*lines)[2].text, "a");  // from the start again
  const auto chats = read_dataset(
      R"([{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"twelve chars"}]},
          {"conversations":[{"from":"human","value":"alone"}]}])",
      "f", options);
  ASSERT_TRUE(chats.ok()) << chats.status().to_string();
  EXPECT_EQ((*chats)[0].text, "q");
  EXPECT_EQ((*chats)[1].max_tokens, 3);
}

TEST(Dataset, SaysWhereItIsWrong) {
  const WorkloadOptions options{.count = 1};
  const auto refusal = [&](const char* text) {
    return read_dataset(text, "file", options).status().to_string();
  };
  EXPECT_THAT(refusal("{\"prompt\":\"a\"}\n{\"prompt\":7}"), HasSubstr("file:2"));
  EXPECT_THAT(refusal("{\"prompt\":\"a\",\"max_tokens\":0}"), HasSubstr("file:1"));
  EXPECT_THAT(refusal("{\"prompt\":\"a\",\"max_tokens\":1e300}"), HasSubstr("file:1"));
  EXPECT_THAT(refusal("[{\"conversations\":3}]"), HasSubstr("file[0]"));
  EXPECT_THAT(refusal("[7]"), HasSubstr("file[0]"));
  EXPECT_THAT(refusal("  \n"), HasSubstr("no prompt"));
  EXPECT_THAT(refusal("[]"), HasSubstr("no prompt"));
}

// ---- streams

TEST(SseReader, FindsTheSameEventsWhereverTheBytesAreCut) {
  const std::string stream =
      ": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata:  lines\n\nid: 3\n\ndata: \r\rdata: "
      "x\n\n";
  const std::vector<std::string> wanted = {"one", "two\n lines", "", "x"};
  for (size_t step = 1; step <= stream.size(); ++step) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += step) {
      ASSERT_TRUE(reader.feed(std::string_view(stream).substr(at, step),
                              [&](std::string_view data) { events.emplace_back(data); }));
    }
    EXPECT_EQ(events, wanted) << step;
    EXPECT_FALSE(reader.pending());
  }
}

TEST(SseReader, DoesNotGrowWithoutEnd) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  bool good = true;
  for (int i = 0; i < 20; ++i) good = good && reader.feed(piece, [](std::string_view) {});
  EXPECT_FALSE(good);
}

TEST(AnswerReader, SeesTextOfEveryRoute) {
  AnswerReader reader;
  for (const char* text :
       {R"({"choices":[{"text":"a"}]})", R"({"choices":[{"delta":{"content":"a"}}]})",
        R"({"choices":[{"delta":{"reasoning_content":"a"}}]})",
        R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})",
        R"({"choices":[{"message":{"content":"a"}}]})"}) {
    const Piece piece = reader.read(text);
    EXPECT_TRUE(piece.well_formed && piece.has_text) << text;
    EXPECT_FALSE(piece.finished || piece.usage || piece.error) << text;
  }
  for (const char* text :
       {R"({"choices":[{"text":""}]})", R"({"choices":[{"delta":{"role":"assistant"}}]})",
        R"({"choices":[{"delta":{"content":null}}]})", R"({"choices":[]})", R"({})",
        R"({"choices":[{"delta":{"tool_calls":[]}}]})", R"({"choices":7})"}) {
    EXPECT_TRUE(reader.read(text).well_formed) << text;
    EXPECT_FALSE(reader.read(text).has_text) << text;
  }
  for (const char* text : {"", "[1]", "7", "{", "null", "{} {}"})
    EXPECT_FALSE(reader.read(text).well_formed) << text;
}

TEST(AnswerReader, SeesEndsUsageAndErrors) {
  AnswerReader reader;
  const Piece end = reader.read(
      R"({"choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":5,
          "completion_tokens":7,"prompt_tokens_details":{"cached_tokens":2}},"error":null})");
  EXPECT_TRUE(end.finished);
  ASSERT_TRUE(end.usage.has_value());
  EXPECT_EQ(end.usage->prompt, 5);
  EXPECT_EQ(end.usage->completion, 7);
  EXPECT_EQ(end.usage->cached, 2);
  EXPECT_FALSE(end.error);
  EXPECT_EQ(*reader.read(R"({"error":{"message":"no"}})").error, "no");
  EXPECT_EQ(*reader.read(R"({"error":"plain"})").error, "plain");
  EXPECT_TRUE(reader.read(R"({"error":{}})").error.has_value());
  EXPECT_FALSE(reader.read(R"({"choices":[{"finish_reason":null}],"usage":null})").finished);
}

// ---- summary

Record answered(double sent, double first, double ended, int64_t tokens) {
  Record r;
  r.sent = sent;
  r.first = first;
  r.ended = ended;
  r.output_tokens = tokens;
  r.prompt_tokens = 10;
  r.counted_by_server = true;
  return r;
}

TEST(Summary, PercentilesAreNumpys) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1.0);
  std::ranges::reverse(values);
  const Distribution d = distribution(values);
  EXPECT_DOUBLE_EQ(d.mean, 50.5);
  EXPECT_DOUBLE_EQ(d.p50, 50.5);
  EXPECT_DOUBLE_EQ(d.p90, 90.1);
  EXPECT_DOUBLE_EQ(d.p99, 99.01);
  EXPECT_DOUBLE_EQ(d.least, 1);
  EXPECT_DOUBLE_EQ(d.most, 100);
  EXPECT_NEAR(d.deviation, 28.8660700, 1e-6);
  EXPECT_EQ(distribution({7.0}).p99, 7.0);
  EXPECT_EQ(distribution({}).count, 0);
}

TEST(Summary, FailedRequestsCountAsErrorsOnly) {
  std::vector<Record> records = {answered(1, 1.5, 3.5, 5), answered(2, 2.25, 2.25, 1)};
  Record refused;
  refused.sent = 2;
  refused.ended = 5;
  refused.outcome = Outcome::kHttp;
  refused.http_status = 429;
  records.push_back(refused);
  refused.outcome = Outcome::kTimeout;
  records.push_back(refused);
  const Summary s = summarize(records, *parse_goals({"ttft:400"}));
  EXPECT_EQ(s.requests, 4);
  EXPECT_EQ(s.completed, 2);
  EXPECT_EQ(s.errors, (std::map<std::string, int>{{"http 429", 1}, {"timeout", 1}}));
  EXPECT_DOUBLE_EQ(s.seconds, 4);
  EXPECT_EQ(s.output_tokens, 6);
  EXPECT_EQ(s.prompt_tokens, 20);
  EXPECT_EQ(s.most_at_once, 4);
  EXPECT_EQ(s.good, 1);
  EXPECT_EQ(s.tpot.count, 1);  // one token has no time between tokens
  EXPECT_DOUBLE_EQ(s.tpot.p50, 0.5);
  EXPECT_DOUBLE_EQ(s.per_second(6), 1.5);
}

TEST(Summary, GoalsAreAllKept) {
  const Record r = answered(0, 0.5, 2.5, 5);
  EXPECT_TRUE(meets(r, *parse_goals({"ttft:500", "tpot:500", "e2el:2500"})));
  EXPECT_FALSE(meets(r, *parse_goals({"ttft:499"})));
  EXPECT_FALSE(meets(r, *parse_goals({"tpot:499"})));
  EXPECT_FALSE(meets(r, *parse_goals({"e2el:2499"})));
  for (const char* text : {"ttft", "ttft:", "ttft:x", "ttft:5x", "ttft:-1", "ttft:0", "itl:5",
                           "ttft:nan", "ttft:inf", ""})
    EXPECT_FALSE(parse_goals({text}).ok()) << text;
}

TEST(Summary, CsvHasAsManyFieldsInEachLine) {
  std::vector<Record> records = {answered(0, 0.5, 2.5, 5), Record{}};
  records[1].outcome = Outcome::kConnect;
  records[1].detail = "a, \"b\"\nc";
  const std::string text = csv(records);
  std::vector<long> commas(1);
  for (const char c : text) {
    if (c == ',') ++commas.back();
    if (c == '\n') commas.push_back(0);
  }
  EXPECT_THAT(commas, ElementsAre(13, 13, 13, 0));
  EXPECT_THAT(text, HasSubstr("\n0,ok,0,0.000,0.000,500.000,500.000,"));
}

// ---- target

TEST(Target, ReadsUrls) {
  const auto plain = parse_url("http://localhost:8000");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, "8000");
  EXPECT_EQ(route(*plain, true), "/v1/chat/completions");
  EXPECT_EQ(route(*parse_url("h:1/v1/"), false), "/v1/completions");
  EXPECT_EQ(route(*parse_url("http://h/x/y/"), false), "/x/y/v1/completions");
  EXPECT_EQ(parse_url("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_url("http://h")->port, "80");
  EXPECT_FALSE(plain->https);
  const auto secure = parse_url("https://h/x/v1");
  ASSERT_TRUE(secure.ok());
  EXPECT_TRUE(secure->https);
  EXPECT_EQ(secure->port, "443");
  EXPECT_EQ(secure->base, "/x");
  for (const char* url : {"", "http://", "http://:80", "http://h:0", "http://h:65536", "http://h:x",
                          "http://u@h", "http://h/?a", "http://h h", "http://[::1", "http://h:",
                          "http://h\r\nx", "http://[::1]x", "https://", "https://h:0", "ftp://h"})
    EXPECT_FALSE(parse_url(url).ok()) << url;
}

TEST(Target, KeysNeverAppearInErrors) {
  EXPECT_EQ(*parse_api_key(" sk-1 2\nsk-2\n"), "sk-1");
  EXPECT_FALSE(parse_api_key(" \n").ok());
  const auto odd = parse_api_key("se\x01cret");
  EXPECT_FALSE(odd.ok());
  EXPECT_EQ(odd.status().message().find("cret"), std::string::npos);
}

TEST(Target, BodiesHoldWhatWasAsked) {
  const Prompt prompt{.text = "a \"b\"", .max_tokens = 4};
  BodyOptions options{.model = "m", .ignore_eos = true};
  options.extra = *Json::parse(R"({"temperature":0.5,"cache_salt":"s"})");
  const Json body = *Json::parse(request_body(prompt, options));
  EXPECT_EQ(body["prompt"].as_string(), "a \"b\"");
  EXPECT_EQ(body["max_tokens"].as_integer(), 4);
  EXPECT_TRUE(body["stream"].as_bool());
  EXPECT_TRUE(body["stream_options"]["include_usage"].as_bool());
  EXPECT_TRUE(body["ignore_eos"].as_bool());
  EXPECT_EQ(body["temperature"].as_double(), 0.5);
  EXPECT_EQ(body["cache_salt"].as_string(), "s");
  options.chat = true;
  const Json chat = *Json::parse(request_body(prompt, options));
  EXPECT_EQ(chat["messages"][size_t{0}]["content"].as_string(), prompt.text);
  EXPECT_FALSE(chat.contains("prompt"));
  const Prompt ids{.ids = {5, 6}};
  EXPECT_EQ((*Json::parse(request_body(ids, {})))["prompt"].size(), 2u);
}

}  // namespace
}  // namespace pelton::bench_serve
