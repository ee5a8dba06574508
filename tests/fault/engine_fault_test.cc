// Allocation failure anywhere while a tokenizer or an engine is made and one request is answered.
#include <gtest/gtest.h>

#include <memory>
#include <new>

#include "base/json_tree.h"
#include "cli/inspect.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/model_files.h"
#include "tests/fault/kth_failure.h"
#include "tests/support/allocation_hook.h"
#include "tests/support/source_root.h"

namespace pelton {
namespace {

using testing::fail_each_allocation;

const std::filesystem::path kModel = pelton::source_root() / "tests/data/runnel-2m";

Status load_tokenizer() { return text::Tokenizer::from_folder(kModel).status(); }

Status open_files() { return engine::ModelFiles::open(kModel).status(); }

Result<std::unique_ptr<engine::Engine>> load() {
  auto files = engine::ModelFiles::open(kModel);
  if (!files.ok()) return files.status();
  engine::EngineOptions options;
  options.threads = 1;
  options.max_model_len = 64;
  options.max_num_seqs = 2;
  return engine::Engine::load(*std::move(files), options);
}

Request short_request() {
  Request request;
  request.prompt_ids = {1, 2, 3, 4};
  request.sampling.max_tokens = 3;
  request.sampling.temperature = 0.0f;
  return request;
}

// How the one request ended. std::bad_alloc may leave submit() and, where not even the failure
// could be told, step().
Status answer(engine::Engine& engine, Request request = short_request(), bool cancel = false) {
  const auto endings_due = static_cast<int>(request.sampling.n);
  struct Ending {
    StatusCode error = StatusCode::kOk;
    int times = 0;
  };
  // Shared: the request outlives this call when std::bad_alloc leaves step().
  const auto ending = std::make_shared<Ending>();
  const auto id = engine.submit(std::move(request), [ending](const TokenEvent& event) {
    if (event.finish == FinishReason::kNone) return;
    ++ending->times;
    ending->error = event.error.code();
  });
  if (!id.ok()) return id.status();
  if (cancel) {
    engine.step();
    engine.cancel(*id);
  }
  engine.run_until_idle();
  if (ending->times != endings_due) return internal_error("not every completion ended once");
  return {ending->error, ""};
}

// Opens, loads, answers one prompt and gives everything back.
Status load_and_answer() {
  auto engine = load();
  return engine.ok() ? answer(**engine) : engine.status();
}

TEST(EngineFaults, Tokenizer) {
  EXPECT_GT(fail_each_allocation([] { return load_tokenizer(); }, {.budget = 120}), 100u);
}

TEST(EngineFaults, ModelFiles) {
  EXPECT_GT(fail_each_allocation([] { return open_files(); }, {.budget = 200}), 100u);
}

TEST(EngineFaults, LoadAndAnswer) {
  EXPECT_GT(fail_each_allocation([] { return load_and_answer(); }, {.budget = 120}), 100u);
}

// One allocation of a request fails: that request ends with the error, the next one is answered.
void expect_the_engine_goes_on(const Request& request, bool cancel = false) {
  auto engine = load();
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  ASSERT_TRUE(answer(**engine).ok());
  int told = 0;
  for (uint64_t k = 1; k < 10000; ++k) {
    Status status;
    bool happened = false;
    {
      const testing::AllocationFailure failure(k, testing::AllocationFailure::Mode::kOnce);
      try {
        status = answer(**engine, request, cancel);
      } catch (const std::bad_alloc&) {
        status = resource_exhausted("");
      }
      happened = failure.happened();
    }
    if (!happened) break;
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted)
        << k << ": " << status.to_string();
    told += status.ok() ? 0 : 1;
    ASSERT_TRUE((*engine)->healthy()) << "allocation " << k;
    (*engine)->run_until_idle();
    ASSERT_TRUE(answer(**engine).ok()) << "after allocation " << k;
    const engine::EngineMetrics metrics = (*engine)->metrics();
    EXPECT_EQ(metrics.scheduler.running, 0) << k;
    EXPECT_EQ(metrics.scheduler.free_blocks, metrics.scheduler.total_blocks) << k;
    EXPECT_EQ(metrics.requests, metrics.finished + metrics.cancelled + metrics.failed) << k;
  }
  EXPECT_GT(told, 10);
}

TEST(EngineFaults, TheEngineGoesOn) { expect_the_engine_goes_on(short_request()); }

TEST(EngineFaults, TheEngineGoesOnAfterCompletionsWithEverything) {
  Request request = short_request();
  request.sampling.n = 2;
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 1;
  request.sampling.logprobs = 3;
  request.sampling.prompt_logprobs = 2;
  request.sampling.stop = {"a stop text that is longer than a short string", "x"};
  request.sampling.logit_bias = {{5, 1.0f}};
  request.sampling.frequency_penalty = 0.5f;
  expect_the_engine_goes_on(request);
}

TEST(EngineFaults, TheEngineGoesOnAfterBeams) {
  Request request = short_request();
  request.sampling.temperature = 1.0f;
  request.sampling.num_beams = 2;
  expect_the_engine_goes_on(request);
}

TEST(EngineFaults, TheEngineGoesOnAfterCancellation) {
  expect_the_engine_goes_on(short_request(), /*cancel=*/true);
}

// Without any memory left a request can still be cancelled.
TEST(EngineFaults, CancellingTakesNoMemory) {
  auto engine = load();
  ASSERT_TRUE(engine.ok());
  FinishReason finish = FinishReason::kNone;
  const auto id =
      (*engine)->submit(short_request(), [&](const TokenEvent& event) { finish = event.finish; });
  ASSERT_TRUE(id.ok());
  (*engine)->step();
  {
    const testing::AllocationFailure failure(1, testing::AllocationFailure::Mode::kFromThenOn);
    (*engine)->cancel(*id);
    EXPECT_FALSE(failure.happened());
  }
  (*engine)->run_until_idle();
  EXPECT_EQ(finish, FinishReason::kCancelled);
}

// A chat on its way to ids: JSON from outside, its template, the tokenizer.
TEST(EngineFaults, Chat) {
  const auto files = engine::ModelFiles::open(kModel);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  const auto tokenizer = (*files)->load_tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const auto ask = [&] {
    auto messages = Json::parse(
        R"([{"role": "user", "content": "a text that is longer than a short string: é 水轮机"},
            {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
             "function": {"name": "f", "arguments": "{\"list\": [1, {\"deep\": [2.5]}]}"}}]}])");
    if (!messages.ok()) return messages.status();
    auto formatter = engine::ChatFormatter::create(**files, *tokenizer);
    if (!formatter.ok()) return formatter.status();
    engine::ChatFormatter::Conversation conversation;
    conversation.messages = *std::move(messages);
    return formatter->prompt_ids(conversation).status();
  };
  EXPECT_GT(fail_each_allocation(ask), 100u);
}

// The longest answer that a command prints.
TEST(EngineFaults, InspectJson) {
  const auto inspect = [] {
    std::string answer;
    return cli::run_inspect({kModel.string(), "", /*json=*/true}, &answer);
  };
  EXPECT_GT(fail_each_allocation(inspect, {.budget = 200}), 100u);
}

}  // namespace
}  // namespace pelton
