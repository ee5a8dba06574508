#include "diag/logits.h"

#include <algorithm>
#include <cmath>

namespace pelton::diag {

Status for_each_row(engine::Engine& engine, const std::vector<int32_t>& ids,
                    const std::function<void(int32_t, std::span<const float>)>& row) {
  int32_t next = 0;
  bool finite = true;
  engine.set_logits_observer(
      [&](RequestId, int32_t, int32_t position, std::span<const float> logits) {
        // After a preemption rows come again, with the same bits.
        if (position == next) {
          // Minus infinity is a token that the model rules out.
          finite = finite && std::ranges::none_of(logits, [](float v) { return std::isnan(v); });
          row(position, logits);
          ++next;
        }
      });
  Request request{.prompt_ids = ids};
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = 0;
  request.sampling.temperature = 0.0f;
  Status error;
  const auto id = engine.submit(std::move(request), [&](const TokenEvent& event) {
    if (event.finish == FinishReason::kError) error = event.error;
  });
  if (id.ok()) engine.run_until_idle();
  engine.set_logits_observer(nullptr);
  if (!id.ok()) return id.status();
  if (!error.ok()) return error;
  if (!finite) return internal_error("the model's logits hold NaN");
  check(next == static_cast<int32_t>(ids.size()), "a row of logits was not computed");
  return {};
}

Result<std::vector<float>> all_logits(engine::Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  logits.reserve(ids.size() * static_cast<size_t>(engine.config().vocab_size));
  const Status status = for_each_row(engine, ids, [&](int32_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  if (!status.ok()) return status;
  return logits;
}

}  // namespace pelton::diag
