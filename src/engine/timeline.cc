#include "engine/timeline.h"

#include <algorithm>

namespace pelton::engine {

void TimelineKeeper::note_rows(const sched::SequenceStep& step, int32_t prompt_length,
                               const StepTime& time, int32_t* reached) {
  const auto rows = static_cast<int32_t>(step.tokens.size());
  const int32_t end = step.first_position + rows;
  const double began = seconds(time.begin - accepted);
  const double took = seconds(time.end - time.begin);
  const bool prompt = step.first_position < prompt_length;
  const bool again = step.first_position < *reached;
  if (times.scheduled == 0) times.scheduled = began;
  if (prompt || again || rows > 1) {
    auto& last = times.prefill[static_cast<size_t>(std::max(times.prefill_chunks - 1, 0))];
    if (times.prefill_chunks < static_cast<int32_t>(times.prefill.size())) {
      times.prefill[static_cast<size_t>(times.prefill_chunks)] = {began, took, rows};
      ++times.prefill_chunks;
    } else {
      last.seconds += took;
      last.tokens += rows;
    }
  } else {
    ++times.decode_steps;
    times.decode_seconds += took;
  }
  times.recomputed_tokens += std::max(0, std::min(end, *reached) - step.first_position);
  *reached = std::max(*reached, end);
  if (step.samples && times.first_token == 0) times.first_token = seconds(time.end - accepted);
}

}  // namespace pelton::engine
