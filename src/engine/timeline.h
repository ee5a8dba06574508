// Keeps the timelines of live requests: the engine tells it of each step, with its times.
#pragma once

#include <chrono>
#include <cstdint>

#include "pelton/request.h"
#include "sched/step_plan.h"

namespace pelton::engine {

using StepClock = std::chrono::steady_clock;

struct StepTime {
  StepClock::time_point begin;
  StepClock::time_point end;
};

// What the timeline of a request needs to be kept.
struct TimelineKeeper {
  StepClock::time_point accepted = StepClock::now();
  RequestTimeline times;

  // A sequence's rows of a step that has run. `reached`: tokens of that sequence that were computed
  // before, whether they are still there or not; it is brought up to date. Takes no memory.
  void note_rows(const sched::SequenceStep& step, int32_t prompt_length, const StepTime& time,
                 int32_t* reached);
  void note_preemption() { ++times.preemptions; }
  void note_detokenized(StepClock::duration spent) { times.detokenize_seconds += seconds(spent); }

 private:
  static double seconds(StepClock::duration time) {
    return std::chrono::duration<double>(time).count();
  }
};

}  // namespace pelton::engine
