#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "server/request_log.h"

namespace pelton::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Checks the text's form and returns its samples by name and labels.
std::map<std::string, double> parse(const std::string& text) {
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::string family;
  std::string type;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash;
    std::string word;
    std::string name;
    words >> hash;
    if (hash == "#") {
      words >> word >> name;
      if (word == "HELP") {
        EXPECT_TRUE(families.insert(name).second) << name << " comes twice";
        family = name;
      } else {
        EXPECT_EQ(word, "TYPE");
        EXPECT_EQ(name, family);
        words >> type;
      }
      continue;
    }
    EXPECT_EQ(line.rfind(family, 0), 0u) << line << " is not in the family " << family;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space))).second)
        << line;
    const size_t end = std::min(line.find('{'), space);
    const bool counter = type == "counter";
    EXPECT_EQ(counter, end >= 6 && line.substr(end - 6, 6) == "_total") << line;
  }
  return samples;
}

RequestTimes times_of(double tokenized, double admitted, double scheduled, double first,
                      double ended) {
  return {tokenized, admitted, scheduled, first, ended};
}

engine::EngineMetrics engine_metrics() {
  engine::EngineMetrics m;
  m.steps = 3;
  m.generated_tokens = 12345678;
  m.scheduler.total_blocks = 8;
  m.scheduler.free_blocks = 6;
  m.scheduler.scheduled_tokens = 30;
  m.scheduler.possible_tokens = 40;
  m.scheduler.preemptions = 2;
  m.scheduler.recomputed_tokens = 50;
  m.scheduler.prefix_queries_tokens = 10;
  m.scheduler.prefix_hit_tokens = 4;
  return m;
}

TEST(Metrics, TellWhatHappened) {
  Metrics metrics;
  metrics.request_ended(RequestEnd::kStop, times_of(0.1, 0.2, 0.5, 1.0, 3.0),
                        {.prompt_tokens = 7, .completion_tokens = 5, .cached_tokens = 0});
  metrics.request_ended(RequestEnd::kLength, times_of(0.1, 0.2, 0.3, 0.4, 0.4),
                        {.prompt_tokens = 7, .completion_tokens = 1, .cached_tokens = 0});
  metrics.request_ended(RequestEnd::kCancelled, times_of(0.1, 0, 0, 0, 9), {});
  metrics.request_ended(RequestEnd::kRefused, times_of(0.1, 0, 0, 0, 0.1), {});
  metrics.inter_token(0.02);
  metrics.response(200);
  metrics.response(404);
  auto m = parse(metrics.text(engine_metrics(), {.waiting = 2}));
  EXPECT_EQ(m.at("pelton_requests_ended_total{finish_reason=\"stop\"}"), 1);
  EXPECT_EQ(m.at("pelton_requests_ended_total{finish_reason=\"refused\"}"), 1);
  EXPECT_EQ(m.at("pelton_http_responses_total{status=\"4xx\"}"), 1);
  EXPECT_EQ(m.at("pelton_requests_waiting"), 2);
  EXPECT_EQ(m.at("pelton_batch_efficiency"), 0.75);
  EXPECT_EQ(m.at("pelton_kv_cache_usage"), 0.25);
  EXPECT_EQ(m.at("pelton_generation_tokens_total"), 12345678);
  EXPECT_EQ(m.at("pelton_preemptions_total"), 2);
  EXPECT_EQ(m.at("pelton_recomputed_tokens_total"), 50);
  EXPECT_EQ(m.at("pelton_queue_wait_seconds_count"), 2);
  EXPECT_NEAR(m.at("pelton_queue_wait_seconds_sum"), 0.6, 1e-9);
  EXPECT_NEAR(m.at("pelton_budget_wait_seconds_sum"), 0.4, 1e-9);
  EXPECT_NEAR(m.at("pelton_prefill_seconds_sum"), 0.6, 1e-9);
  EXPECT_NEAR(m.at("pelton_decode_seconds_sum"), 2.0, 1e-9);
  EXPECT_NEAR(m.at("pelton_time_per_output_token_seconds_sum"), 0.5, 1e-9);
  EXPECT_NEAR(m.at("pelton_queue_wait_p99_seconds"), 0.4, 1e-9);
  EXPECT_EQ(m.at("pelton_request_seconds_count{finish_reason=\"stop\"}"), 1);
  EXPECT_EQ(m.at("pelton_request_seconds_sum{finish_reason=\"cancelled\"}"), 9);
  EXPECT_EQ(m.at("pelton_request_seconds_bucket{finish_reason=\"stop\",le=\"2.5\"}"), 0);
  EXPECT_EQ(m.at("pelton_request_seconds_bucket{finish_reason=\"stop\",le=\"5\"}"), 1);
  EXPECT_EQ(m.at("pelton_request_seconds_bucket{finish_reason=\"stop\",le=\"+Inf\"}"), 1);
}

TEST(Metrics, VllmNamesAreAliases) {
  Metrics metrics;
  metrics.request_ended(RequestEnd::kStop, times_of(0.1, 0.2, 0.5, 1.0, 3.0),
                        {.prompt_tokens = 7, .completion_tokens = 5, .cached_tokens = 0});
  EXPECT_THAT(metrics.text(engine_metrics(), {}), Not(HasSubstr("vllm:")));
  auto m = parse(metrics.text(engine_metrics(), {}, "a \"b\"\\\n"));
  const std::string model = R"(model_name="a \"b\"\\\n")";
  EXPECT_EQ(m.at("vllm:generation_tokens_total{" + model + "}"),
            m.at("pelton_generation_tokens_total"));
  EXPECT_EQ(m.at("vllm:kv_cache_usage_perc{" + model + "}"), 0.25);
  EXPECT_EQ(m.at("vllm:request_success_total{" + model + ",finished_reason=\"stop\"}"), 1);
  EXPECT_EQ(m.at("vllm:e2e_request_latency_seconds_count{" + model + ",finish_reason=\"stop\"}"),
            1);
  EXPECT_EQ(m.at("vllm:time_to_first_token_seconds_bucket{" + model + ",le=\"1\"}"), 1);
}

// Counters only grow, whoever reads while they are written.
TEST(Metrics, GrowMonotonouslyUnderThreads) {
  Metrics metrics;
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t) {
    writers.emplace_back([&] {
      while (!stop) {
        metrics.request_ended(RequestEnd::kStop, times_of(0.1, 0.2, 0.5, 1.0, 3.0),
                              {.prompt_tokens = 7, .completion_tokens = 5, .cached_tokens = 0});
        metrics.inter_token(0.01);
        metrics.sample_utilization(1, 2);
      }
    });
  }
  std::map<std::string, double> before;
  for (int i = 0; i < 50; ++i) {
    const auto now = parse(metrics.text(engine_metrics(), {}, "m"));
    for (const auto& [name, value] : before) {
      if (name.find("_bucket") == std::string::npos && name.find("_total") == std::string::npos)
        continue;
      EXPECT_GE(now.at(name), value) << name;
    }
    before = now;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST(RecentValues, ForgetTheOldest) {
  RecentValues values;
  EXPECT_EQ(values.quantile(0.99), 0);
  values.add(1000);
  for (int i = 0; i < 511; ++i) values.add(i);
  EXPECT_EQ(values.quantile(1), 1000);
  values.add(5);
  EXPECT_EQ(values.quantile(1), 510);
  EXPECT_EQ(values.quantile(0), 0);
}

TEST(Utilization, KnowsMeanAndFluctuation) {
  Utilization steady;
  for (int i = 1; i <= 10; ++i) steady.sample(0.5 * i, i);
  EXPECT_DOUBLE_EQ(steady.figures().mean, 0.5);
  EXPECT_NEAR(steady.figures().deviation, 0, 1e-12);
  Utilization jumping;
  double busy = 0;
  for (int i = 1; i <= 10; ++i) {
    busy += i % 2;
    jumping.sample(busy, i);
    jumping.sample(busy + 100, i + 0.5);  // too soon
  }
  EXPECT_DOUBLE_EQ(jumping.figures().mean, 0.5);
  EXPECT_DOUBLE_EQ(jumping.figures().deviation, 0.5);
}

TEST(RequestLog, IsOneLineWhateverAClientSends) {
  RequestTimeline line;
  line.scheduled = 0.1;
  line.first_token = 0.4;
  line.prefill_chunks = 2;
  line.prefill[0] = {0.1, 0.2, 256};
  line.prefill[1] = {0.3, 0.1, 17};
  line.decode_steps = 9;
  line.detokenize_seconds = 0.002;
  LoggedRequest request;
  request.id = "req-1";
  request.client_id = "a\"b\\\n\r\x01\xFF\u2028";
  request.route = "/v1/completions";
  request.end = RequestEnd::kLength;
  request.times = times_of(0.01, 0.05, 0.15, 0.45, 1.45);
  request.usage = {.prompt_tokens = 273, .completion_tokens = 10, .cached_tokens = 0};
  request.timelines = {&line, 1};
  const std::string text = request_line(request, 1700000000123);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["time_ms"], 1700000000123);
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["prompt_tokens"], 273);
  const auto& timings = json["timings"];
  EXPECT_NEAR(timings["queue_ms"], 40, 1e-6);
  EXPECT_NEAR(timings["budget_wait_ms"], 100, 1e-6);
  EXPECT_NEAR(timings["prefill_ms"], 300, 1e-6);
  EXPECT_NEAR(timings["decode_ms"], 1000, 1e-6);
  EXPECT_NEAR(timings["detokenize_ms"], 2, 1e-6);
  const auto& chunks = timings["waterfall"][0]["prefill_chunks"];
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[1]["tokens"], 17);
  EXPECT_NEAR(chunks[1]["start_ms"], 350, 1e-6);
}

TEST(RequestLog, ARequestThatNeverRanHasNoWaterfall) {
  const RequestTimeline none;
  LoggedRequest request;
  request.end = RequestEnd::kRefused;
  request.times = times_of(0.01, 0, 0, 0, 0.5);
  request.timelines = {&none, 1};
  const auto timings = nlohmann::json::parse(request_line(request, 0))["timings"];
  EXPECT_TRUE(timings["waterfall"].empty());
  EXPECT_NEAR(timings["queue_ms"], 490, 1e-6);
  EXPECT_EQ(timings["prefill_ms"], 0);
}

}  // namespace
}  // namespace pelton::server
