// The engine on a device that is not there: a fake one over the scalar references. It answers as
// the CPU does, takes what was planned and no more, and goes wrong at every call in every way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "device/testing/fake_device.h"
#include "engine/engine.h"
#include "kernels/ref/device_kernels.h"
#include "tests/support/source_root.h"

namespace pelton {
namespace {

using device::FakeCall;
using device::FakeDevice;
using device::FakeFault;

const std::filesystem::path kModel = pelton::source_root() / "tests/data/runnel-2m";

engine::EngineOptions small_options() {
  engine::EngineOptions options;
  options.threads = 1;
  options.max_model_len = 64;
  options.max_num_seqs = 2;
  options.max_num_batched_tokens = 16;
  options.block_size = 16;
  options.activations = kernels::ActivationPrecision::kF32;
  options.kv_cache_dtype = kernels::KvFormat::kF32;
  return options;
}

struct Fake {
  FakeDevice* device = nullptr;  // the backend's
  engine::EngineOptions options;
};

Fake fake_options(size_t memory_bytes = size_t{256} << 20) {
  auto device = std::make_unique<FakeDevice>(memory_bytes);
  Fake fake{device.get(), small_options()};
  fake.options.cuda = true;
  auto backend = runtime::Backend::create(std::move(device), kernels::ref::device_kernels());
  EXPECT_TRUE(backend.ok());
  fake.options.backend = *backend;
  return fake;
}

Result<std::unique_ptr<engine::Engine>> load(const engine::EngineOptions& options) {
  auto files = engine::ModelFiles::open(kModel);
  if (!files.ok()) return files.status();
  return engine::Engine::load(*std::move(files), options);
}

struct Ending {
  std::vector<int32_t> ids;
  Status error;
  int times = 0;
};

Ending answer(engine::Engine& engine, int32_t max_tokens) {
  Request request;
  request.prompt_ids = {1, 20, 300, 4000};
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0.0f;
  request.sampling.ignore_eos = true;
  Ending ending;
  const auto id = engine.submit(std::move(request), [&](const TokenEvent& event) {
    ending.ids.insert(ending.ids.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish == FinishReason::kNone) return;
    ++ending.times;
    ending.error = event.error;
  });
  if (!id.ok()) {
    ending.error = id.status();
    ending.times = 1;
    return ending;
  }
  engine.run_until_idle();
  return ending;
}

TEST(DeviceEngineTest, AnswersAsTheCpuDoes) {
  auto cpu = load(small_options());
  ASSERT_TRUE(cpu.ok()) << cpu.status().to_string();
  const Fake fake = fake_options();
  auto gpu = load(fake.options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().to_string();
  const Ending want = answer(**cpu, 24);
  const Ending got = answer(**gpu, 24);
  EXPECT_EQ(want.ids.size(), 24u);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_TRUE(got.error.ok()) << got.error.to_string();
  EXPECT_EQ(fake.device->misuse(), "");
  // A cached prefix, beams and their copied blocks.
  EXPECT_EQ(answer(**gpu, 24).ids, want.ids);
}

TEST(DeviceEngineTest, TakesWhatWasPlannedAndNothingAfterwards) {
  const Fake fake = fake_options();
  auto engine = load(fake.options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  // The fake device keeps graphs in host memory.
  EXPECT_EQ(fake.device->live_bytes(), (*engine)->plan().device() - (*engine)->plan().graphs);
  EXPECT_GT((*engine)->plan().device(), 0u);
  answer(**engine, 4);
  const int64_t allocations =
      fake.device->calls(FakeCall::kAllocate) + fake.device->calls(FakeCall::kAllocatePinned);
  const int64_t waits = fake.device->calls(FakeCall::kFinish);
  const int64_t sent = fake.device->calls(FakeCall::kCopyToDevice);
  const int64_t steps = (*engine)->metrics().steps;
  answer(**engine, 12);
  const int64_t ran = (*engine)->metrics().steps - steps;
  EXPECT_GE(ran, 12);
  EXPECT_EQ(fake.device->calls(FakeCall::kAllocate) + fake.device->calls(FakeCall::kAllocatePinned),
            allocations);
  EXPECT_EQ(fake.device->calls(FakeCall::kFinish), waits) << "ids are waited for, not the stream";
  EXPECT_EQ(fake.device->calls(FakeCall::kCopyToDevice) - sent, ran) << "one copy a step";
}

TEST(DeviceEngineTest, GivesEverythingBack) {
  Fake fake = fake_options();
  const auto backend = fake.options.backend;
  {
    auto engine = load(fake.options);
    ASSERT_TRUE(engine.ok());
    answer(**engine, 2);
  }
  EXPECT_EQ(fake.device->live_bytes(), 0u);
  EXPECT_EQ(fake.device->misuse(), "");
}

TEST(DeviceEngineTest, ALackOfMemoryIsToldAtStartAndByHowMuch) {
  const Fake fake = fake_options(size_t{2} << 20);
  const auto engine = load(fake.options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(engine.status().message().find("missing"), std::string::npos)
      << engine.status().to_string();
}

TEST(DeviceEngineTest, FewerBlocksWhereLessMemoryIsFree) {
  const Fake large = fake_options();
  auto whole = load(large.options);
  ASSERT_TRUE(whole.ok());
  const runtime::MemoryPlan& plan = (*whole)->plan();
  const size_t fixed = plan.device() - plan.kv_cache;
  const Fake small = fake_options((fixed + 3 * plan.kv_block_bytes) * 10 / 9);
  auto engine = load(small.options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_LT((*engine)->plan().num_blocks, plan.num_blocks);
  EXPECT_GE((*engine)->plan().num_blocks, 2);
  EXPECT_EQ(answer(**engine, 4).ids, answer(**whole, 4).ids);
}

// Every call of loading and of a request's first two steps fails once, each way.
class DeviceFaultTest : public testing::TestWithParam<FakeFault> {};
INSTANTIATE_TEST_SUITE_P(Faults, DeviceFaultTest,
                         testing::Values(FakeFault::kError, FakeFault::kHang, FakeFault::kCorrupt));

TEST_P(DeviceFaultTest, AnyCallMayGoWrong) {
  int64_t loading = 0;
  int64_t all = 0;
  {
    const Fake fake = fake_options();
    auto engine = load(fake.options);
    ASSERT_TRUE(engine.ok());
    loading = fake.device->calls();
    ASSERT_EQ(answer(**engine, 2).ids.size(), 2u);
    all = fake.device->calls();
  }
  const int64_t stride = std::getenv("PELTON_LONG_TESTS") != nullptr ? 1 : 11;
  int damaged = 0;
  std::vector<int64_t> calls = {all - 2, all - 1};  // the last ids' copy, and its event
  for (int64_t k = 0; k < all - 2; k += stride) calls.push_back(k);
  for (const int64_t k : calls) {
    const Fake fake = fake_options();
    fake.device->inject(k, GetParam());
    auto engine = load(fake.options);
    if (!engine.ok()) {
      EXPECT_LT(k, loading);
      EXPECT_NE(GetParam(), FakeFault::kCorrupt) << k << engine.status().to_string();
      EXPECT_EQ(engine.status().code(), StatusCode::kInternal) << k;
      continue;
    }
    EXPECT_TRUE(k >= loading || GetParam() != FakeFault::kError) << "loading noticed nothing";
    const Ending ending = answer(**engine, 2);
    EXPECT_EQ(ending.times, 1) << k;
    EXPECT_EQ(fake.device->misuse(), "") << k;
    if (GetParam() == FakeFault::kCorrupt) {
      // Logits that are NaN end the request and nothing else.
      EXPECT_TRUE(ending.error.ok() ? ending.ids.size() == 2 : ending.ids.size() < 2) << k;
      damaged += ending.error.ok() ? 0 : 1;
      EXPECT_TRUE((*engine)->healthy()) << k;
      continue;
    }
    EXPECT_FALSE(ending.error.ok()) << k;
    EXPECT_NE(ending.error.message().find("fake device"), std::string::npos)
        << ending.error.to_string();
    EXPECT_FALSE((*engine)->healthy()) << k;
    // The next request is refused; nothing hangs, nothing is left behind.
    EXPECT_FALSE(answer(**engine, 1).error.ok()) << k;
  }
  EXPECT_EQ(damaged > 0, GetParam() == FakeFault::kCorrupt);
}

// What is asked for while steps run ahead of one another: greedy, drawn, and with penalties over a
// token that is not known yet; or, with `on_host`, one whose logits come to the host.
std::vector<Request> company(bool on_host) {
  std::vector<Request> requests(3);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt_ids = {1, 20, static_cast<int32_t>(300 + i)};
    SamplingParams& params = requests[i].sampling;
    params.max_tokens = static_cast<int32_t>(4 + 3 * i);
    params.temperature = i == 0 ? 0.0f : 0.8f;
    params.seed = i;
    params.ignore_eos = true;
  }
  requests[2].sampling.repetition_penalty = 1.2f;
  if (on_host) requests[1].sampling.logprobs = 1;
  return requests;
}

std::vector<Ending> run_company(engine::Engine& engine, bool on_host) {
  const std::vector<Request> requests = company(on_host);
  std::vector<Ending> endings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.submit(requests[i], [&endings, i](const TokenEvent& event) {
      endings[i].ids.insert(endings[i].ids.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish == FinishReason::kNone) return;
      ++endings[i].times;
      endings[i].error = event.error;
    });
    EXPECT_TRUE(id.ok()) << id.status().to_string();
  }
  engine.run_until_idle();
  return endings;
}

// One fault at call `k` after loading. The company is larger than two sequences that run at once.
void fault_in_company(bool on_host, FakeFault fault, int64_t k, const std::vector<Ending>& whole) {
  const Fake fake = fake_options();
  auto engine = load(fake.options);
  ASSERT_TRUE(engine.ok());
  fake.device->inject(fake.device->calls() + k, fault);
  const std::vector<Ending> got = run_company(**engine, on_host);
  int failed = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].times, 1) << k << ' ' << i;
    const bool error = !got[i].error.ok();
    failed += error ? 1 : 0;
    ASSERT_LE(got[i].ids.size(), whole[i].ids.size());
    if (!error) {
      EXPECT_EQ(got[i].ids, whole[i].ids) << k << ' ' << i;
    }
    if (error && fault != FakeFault::kCorrupt) {
      EXPECT_NE(got[i].error.message().find("fake device"), std::string::npos)
          << k << ' ' << got[i].error.to_string();
    }
  }
  EXPECT_EQ((*engine)->healthy(), fault == FakeFault::kCorrupt) << k;
  if (fault != FakeFault::kCorrupt) {
    EXPECT_GT(failed, 0) << k;
    EXPECT_FALSE(answer(**engine, 1).error.ok()) << k;
  }
  const engine::EngineMetrics m = (*engine)->metrics();
  EXPECT_EQ(m.requests, m.finished + m.failed) << k;
  EXPECT_EQ(m.scheduler.free_blocks, m.scheduler.total_blocks) << k;
  EXPECT_EQ(fake.device->misuse(), "") << k;
}

TEST_P(DeviceFaultTest, AnyCallOfStepsInCompanyMayGoWrong) {
  for (const bool on_host : {false, true}) {
    int64_t calls = 0;
    std::vector<Ending> whole;
    {
      const Fake fake = fake_options();
      auto engine = load(fake.options);
      ASSERT_TRUE(engine.ok());
      const int64_t loading = fake.device->calls();
      whole = run_company(**engine, on_host);
      calls = fake.device->calls() - loading;
      EXPECT_GT((*engine)->metrics().graph_replays, 0);
    }
    const int64_t stride = std::getenv("PELTON_LONG_TESTS") != nullptr ? 1 : 61;
    // Of a replayed step every call.
    constexpr int64_t kLast = 12;
    for (int64_t k = 0; k < calls; k += k < calls - kLast ? std::min(stride, calls - kLast - k) : 1)
      fault_in_company(on_host, GetParam(), k, whole);
  }
}

}  // namespace
}  // namespace pelton
