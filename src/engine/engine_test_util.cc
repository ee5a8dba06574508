#include "engine/engine_test_util.h"

#include "tests/support/source_root.h"

namespace pelton::engine {

void Outcome::add(const TokenEvent& event) {
  const auto index = static_cast<size_t>(event.index);
  if (completions.size() <= index) completions.resize(index + 1);
  CompletionOutcome& completion = completions[index];
  completion.ids.insert(completion.ids.end(), event.tokens.begin(), event.tokens.end());
  completion.text += event.text;
  completion.usage = event.usage;
  completion.logprobs.insert(completion.logprobs.end(), event.logprobs.begin(),
                             event.logprobs.end());
  if (!event.prompt_logprobs.empty()) prompt_logprobs = event.prompt_logprobs;
  if (event.finish == FinishReason::kNone) return;
  completion.finish = event.finish;
  completion.error = event.error;
  ++completion.finishes;
}

std::unique_ptr<Engine> load_or_fail(const std::filesystem::path& path,
                                     const EngineOptions& options) {
  auto files = ModelFiles::open(path);
  EXPECT_TRUE(files.ok()) << files.status().to_string();
  if (!files.ok()) return nullptr;
  auto engine = Engine::load(std::move(files).value(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

Outcome run_request(Engine& engine, const Request& request) {
  Outcome outcome;
  const auto id = engine.submit(request, [&](const TokenEvent& event) { outcome.add(event); });
  outcome.status = id.status();
  engine.run_until_idle();
  return outcome;
}

std::vector<float> logits_of(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  engine.set_logits_observer([&](RequestId, int32_t, int32_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  Request request;
  request.prompt_ids = ids;
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = 0;
  const Outcome outcome = run_request(engine, request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  engine.set_logits_observer(nullptr);
  return logits;
}

std::filesystem::path small_model() { return pelton::source_root() / "tests/data/runnel-2m"; }

}  // namespace pelton::engine
