// Steps on a device (a fake one over the scalar references): tokens chosen there, the next step
// planned while one runs, decode steps replayed as captured. Answers are the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "device/testing/fake_device.h"
#include "engine/engine.h"
#include "engine/engine_test_util.h"
#include "kernels/ref/device_kernels.h"

namespace pelton::engine {
namespace {

using device::FakeCall;
using device::FakeDevice;

EngineOptions small_options() {
  EngineOptions options;
  options.threads = 1;
  options.max_model_len = 96;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 24;
  options.block_size = 16;
  options.activations = kernels::ActivationPrecision::kF32;
  options.kv_cache_dtype = kernels::KvFormat::kF32;
  return options;
}

struct Fake {
  FakeDevice* device = nullptr;  // the backend's
  std::unique_ptr<Engine> engine;
};

Fake fake_engine(EngineOptions options) {
  auto device = std::make_unique<FakeDevice>(size_t{256} << 20);
  Fake fake{device.get(), nullptr};
  options.cuda = true;
  options.backend = *runtime::Backend::create(std::move(device), kernels::ref::device_kernels());
  fake.engine = load_or_fail(small_model(), options);
  return fake;
}

Request request(int32_t first, int32_t tokens, float temperature) {
  Request r;
  for (int32_t i = 0; i < 3 + first % 5; ++i) r.prompt_ids.push_back(20 + 31 * first + 7 * i);
  r.sampling.max_tokens = tokens;
  r.sampling.temperature = temperature;
  r.sampling.seed = static_cast<uint64_t>(first);
  r.sampling.ignore_eos = true;
  return r;
}

// All at once; by index.
std::vector<Outcome> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Outcome> outcomes(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.submit(
        requests[i], [&outcomes, i](const TokenEvent& event) { outcomes[i].add(event); });
    EXPECT_TRUE(id.ok()) << id.status().to_string();
  }
  engine.run_until_idle();
  return outcomes;
}

void expect_equal(const std::vector<Outcome>& a, const std::vector<Outcome>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].completions.size(), b[i].completions.size());
    for (size_t c = 0; c < a[i].completions.size(); ++c) {
      EXPECT_EQ(a[i].completions[c].ids, b[i].completions[c].ids) << i;
      EXPECT_EQ(a[i].completions[c].finish, b[i].completions[c].finish) << i;
      EXPECT_EQ(a[i].completions[c].text, b[i].completions[c].text) << i;
      EXPECT_EQ(a[i].completions[c].finishes, 1) << i;
    }
  }
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 14; ++i) {
    Request r = request(i, 3 + 2 * i, i % 3 == 0 ? 0.0f : 0.9f);
    if (i % 4 == 1) r.sampling.top_k = 20;
    if (i % 4 == 2) r.sampling.top_p = 0.8f;
    if (i % 5 == 3) r.sampling.min_p = 0.05f;
    if (i == 7) r.sampling.n = 3;
    requests.push_back(r);
  }
  return requests;
}

TEST(DeviceSteps, AnswersAreTheCpusInAnyCompany) {
  auto cpu = load_or_fail(small_model(), small_options());
  ASSERT_NE(cpu, nullptr);
  const std::vector<Outcome> want = run_all(*cpu, mixed_requests());
  for (const bool eager : {false, true}) {
    EngineOptions options = small_options();
    options.enforce_eager = eager;
    Fake fake = fake_engine(options);
    ASSERT_NE(fake.engine, nullptr);
    expect_equal(run_all(*fake.engine, mixed_requests()), want);
    EXPECT_EQ(fake.engine->metrics().graph_replays > 0, !eager);
    EXPECT_EQ(fake.engine->graph_fault(), "");
    EXPECT_EQ(fake.device->misuse(), "");
    const EngineMetrics m = fake.engine->metrics();
    EXPECT_EQ(m.scheduler.free_blocks, m.scheduler.total_blocks);
  }
}

TEST(DeviceSteps, StopsFoundAStepLateEndWhereTheCpuEnds) {
  auto cpu = load_or_fail(small_model(), small_options());
  Fake fake = fake_engine(small_options());
  ASSERT_NE(fake.engine, nullptr);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) requests.push_back(request(i, 40, 0.0f));
  const std::vector<Outcome> whole = run_all(*cpu, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const CompletionOutcome& c = whole[i].completions[0];
    if (i % 2 == 0) {
      requests[i].sampling.stop_token_ids = {c.ids[4 + i]};
    } else if (c.text.size() > 8) {
      requests[i].sampling.stop = {c.text.substr(5, 3)};
    }
  }
  expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
}

// Penalties over prompt and output, also of a token that is not known yet when its step is planned.
std::vector<Request> adjusted_requests() {
  std::vector<Request> requests = mixed_requests();
  requests.resize(8);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& params = requests[i].sampling;
    params.max_tokens += 24;
    if (i % 3 == 0) params.repetition_penalty = 1.3f;
    if (i % 3 == 1) params.presence_penalty = 0.8f;
    if (i % 4 == 2) params.frequency_penalty = 0.6f;
    if (i % 5 == 0) params.logit_bias = {{300, 4.0f}, {7, -100.0f}, {12, 2.5f}};
    if (i % 2 == 1) {
      params.ignore_eos = false;
      params.stop_token_ids = {300, 12, 40, 41};
      params.min_tokens = std::min(4, params.max_tokens);
    }
  }
  return requests;
}

TEST(DeviceSteps, PenaltiesBiasesAndSuppressedIdsStayOnTheDevice) {
  auto cpu = load_or_fail(small_model(), small_options());
  const std::vector<Outcome> want = run_all(*cpu, adjusted_requests());
  for (const int32_t blocks : {0, 9}) {  // few: with preemptions
    EngineOptions options = small_options();
    options.num_kv_blocks = blocks;
    Fake fake = fake_engine(options);
    ASSERT_NE(fake.engine, nullptr);
    const int64_t waits = fake.device->calls(FakeCall::kFinish);
    expect_equal(run_all(*fake.engine, adjusted_requests()), want);
    EXPECT_EQ(fake.device->calls(FakeCall::kFinish), waits) << "logits came to the host";
    EXPECT_EQ(fake.engine->metrics().scheduler.preemptions > 0, blocks > 0);
    EXPECT_EQ(fake.device->misuse(), "");
  }
}

TEST(DeviceSteps, ListsBeyondTheirRoomAndDoubleBiasesGoToTheHost) {
  auto cpu = load_or_fail(small_model(), small_options());
  Fake fake = fake_engine(small_options());
  ASSERT_NE(fake.engine, nullptr);
  std::vector<Request> requests = {request(1, 6, 0.7f), request(2, 6, 0.0f)};
  requests[0].sampling.logit_bias = {{300, 1.0f}, {300, 1.5f}};
  const int64_t waits = fake.device->calls(FakeCall::kFinish);
  expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
  EXPECT_GT(fake.device->calls(FakeCall::kFinish), waits);
  for (int32_t i = 0; i < 1000; ++i) requests[1].sampling.logit_bias.emplace_back(i, 0.5f);
  requests[0] = requests[1];
  requests[0].sampling.n = 6;
  for (int i = 0; i < 2; ++i) {  // once with room left behind by what ended
    const int64_t before = fake.device->calls(FakeCall::kFinish);
    expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
    EXPECT_GT(fake.device->calls(FakeCall::kFinish), before);
    const int64_t after = fake.device->calls(FakeCall::kFinish);
    const std::vector<Request> few = {requests[1]};
    expect_equal(run_all(*fake.engine, few), run_all(*cpu, few));
    EXPECT_EQ(fake.device->calls(FakeCall::kFinish), after);
  }
}

TEST(DeviceSteps, ARequestThatNeedsTheHostMakesRoomForItself) {
  auto cpu = load_or_fail(small_model(), small_options());
  Fake fake = fake_engine(small_options());
  ASSERT_NE(fake.engine, nullptr);
  std::vector<Request> requests = mixed_requests();
  requests[2].sampling.typical_p = 0.9f;
  requests[9].sampling.logprobs = 2;
  expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
  requests = mixed_requests();
  expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
}

TEST(DeviceSteps, PreemptionWhileTokensArePending) {
  auto cpu = load_or_fail(small_model(), small_options());
  EngineOptions options = small_options();
  options.num_kv_blocks = 9;
  Fake fake = fake_engine(options);
  ASSERT_NE(fake.engine, nullptr);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(request(i, 60, 0.7f));
  expect_equal(run_all(*fake.engine, requests), run_all(*cpu, requests));
  EXPECT_GT(fake.engine->metrics().scheduler.preemptions, 0);
}

TEST(DeviceSteps, ASteadyDecodeStepIsThreeCallsAndNoWait) {
  Fake fake = fake_engine(small_options());
  ASSERT_NE(fake.engine, nullptr);
  Request r = request(1, 80, 0.0f);
  ASSERT_TRUE(fake.engine->submit(r, nullptr).ok());
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(fake.engine->step());
  std::map<FakeCall, int64_t> before;
  for (int call = 0; call < static_cast<int>(FakeCall::kCount); ++call)
    before[static_cast<FakeCall>(call)] = fake.device->calls(static_cast<FakeCall>(call));
  constexpr int64_t kSteps = 10;
  for (int i = 0; i < kSteps; ++i) ASSERT_TRUE(fake.engine->step());
  const auto made = [&](FakeCall call) { return fake.device->calls(call) - before[call]; };
  EXPECT_EQ(made(FakeCall::kCopyToDevice), kSteps);
  EXPECT_EQ(made(FakeCall::kLaunch), kSteps);
  EXPECT_EQ(made(FakeCall::kCopyToHost), kSteps);
  EXPECT_EQ(made(FakeCall::kRecord), kSteps);
  EXPECT_EQ(made(FakeCall::kFinish) + made(FakeCall::kWait), 0);
  EXPECT_EQ(made(FakeCall::kAllocate) + made(FakeCall::kAllocatePinned), 0);
  fake.engine->run_until_idle();
}

TEST(DeviceSteps, CancelledWhileAStepIsUnderWay) {
  Fake fake = fake_engine(small_options());
  ASSERT_NE(fake.engine, nullptr);
  Outcome outcome;
  const auto id = fake.engine->submit(request(1, 80, 0.0f),
                                      [&](const TokenEvent& event) { outcome.add(event); });
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fake.engine->step());
  fake.engine->cancel(*id);
  fake.engine->run_until_idle();
  EXPECT_EQ(outcome.completions.at(0).finish, FinishReason::kCancelled);
  EXPECT_EQ(outcome.completions.at(0).finishes, 1);
  const EngineMetrics m = fake.engine->metrics();
  EXPECT_EQ(m.scheduler.free_blocks, m.scheduler.total_blocks);
}

}  // namespace
}  // namespace pelton::engine
