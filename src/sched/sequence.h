// The scheduler's own view of requests. A Job is a request; its Units are what is scheduled: one
// for each of `n` completions, or a single one that holds all beams, which run all or nothing. A
// Unit's members are its sequences.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "kv/blocks/block_table.h"
#include "pelton/request.h"
#include "sched/step_plan.h"

namespace pelton::sched {

struct Job;
struct Unit;

// Total order of everything that runs or waits; smaller goes first. Fixed when the request arrives,
// so only a bounded number of requests can ever stand before a given one.
struct OrderKey {
  int64_t rank = 0;
  uint64_t arrival = 0;
  int32_t index = 0;
  friend auto operator<=>(const OrderKey&, const OrderKey&) = default;
};

// With aging, one class of priority weighs `aging_steps` steps of arrival; without, rank is the
// priority.
inline int64_t order_rank(int32_t priority, uint64_t step, int32_t aging_steps) {
  if (aging_steps <= 0) return priority;
  return int64_t{priority} * aging_steps + static_cast<int64_t>(step);
}

struct ByKey {
  bool operator()(const Unit* a, const Unit* b) const;
};
using OrderedUnits = std::set<Unit*, ByKey>;

struct Sequence {
  SequenceId id = 0;
  Unit* unit = nullptr;
  int32_t index = 0;            // completion index, or place in the beam group
  std::vector<int32_t> tokens;  // prompt first; capacity for the longest it can get
  kv::BlockTable table;
  int32_t computed = 0;    // leading tokens whose keys and values are in the blocks
  int32_t scheduled = 0;   // rows in the plan that is not yet committed
  int32_t logit_rows = 0;  // of them, rows whose logits are asked for
  bool samples = false;    // that plan's last row chooses a token
  int32_t lost = 0;        // computed tokens given up by the last preemption
  bool has_token = false;
  int32_t token = 0;     // chosen, not yet appended
  bool pending = false;  // the last token is kPendingToken

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
};

enum class Place : uint8_t {
  kAwaitsPrompt,  // another completion of the request computes the prompt
  kWaiting,       // in the queue; may hold blocks it was forked with
  kRunning,
  kPadding,  // ended for its request; static batching goes on computing a row of it
  kEnded,    // kept until the next plan
};

// Where beams are rearranged; one a member.
struct BeamScratch {
  std::vector<int32_t> tokens;
  kv::BlockTable table;
};

struct Unit {
  Job* job = nullptr;
  OrderKey key;
  Place place = Place::kWaiting;
  std::vector<Sequence> members;
  int32_t preemptions = 0;
  bool forked = false;  // beams exist: before that only the first member runs, the prompt
  std::vector<BeamScratch> scratch;
  std::vector<int32_t> parents;  // of the next beams, as member indices; empty: not chosen yet
  OrderedUnits::node_type node;  // this unit's place in the queue while it is not in it

  bool is_group() const { return members.size() > 1; }
  // Members that have tokens of their own to run.
  std::span<Sequence> active() { return std::span(members).first(active_count()); }
  std::span<const Sequence> active() const { return std::span(members).first(active_count()); }
  size_t active_count() const { return forked ? members.size() : 1; }
};

inline bool ByKey::operator()(const Unit* a, const Unit* b) const { return a->key < b->key; }

struct Job {
  // Leading rows of the prompt whose logits are wanted. The row of its last token tells nothing
  // about the prompt and is there to sample from; where nothing is sampled it is wanted with the
  // others, however the prompt is cut into steps.
  int32_t wanted_logits() const {
    return prompt_logprobs ? prompt_length - (prompt_only ? 0 : 1) : 0;
  }

  RequestId id = 0;
  int32_t priority = 0;
  int32_t prompt_length = 0;
  int32_t max_length = 0;    // tokens at which a sequence ends with kLength
  int32_t min_length = 0;    // tokens before which nothing stops it
  bool prompt_only = false;  // max_tokens 0
  bool prompt_logprobs = false;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::unique_ptr<Unit>> units;
  int32_t live_units = 0;
  bool admitted = false;      // was running once
  bool prompt_done = false;   // completions behind the first have been forked
  int32_t prompt_logits = 0;  // leading rows whose logits were given out
  int32_t cached_prompt = 0;  // prompt tokens found in the cache at first admission
  uint64_t batch = 0;         // static batching
};

}  // namespace pelton::sched
