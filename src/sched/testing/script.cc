#include "sched/testing/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sched/testing/simulator.h"

namespace pelton::sched::testing {
namespace {

constexpr int32_t kVocab = 60;
constexpr int32_t kMaxRequests = 48;
constexpr int64_t kMaxSteps = 3000;  // of one script, before the final run

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  int32_t next() {
    if (bytes_.empty()) return 0;
    const int32_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  int32_t between(int32_t low, int32_t high) { return low + next() % (high - low + 1); }

 private:
  std::span<const uint8_t> bytes_;
};

SchedulerConfig read_config(Bytes* bytes) {
  SchedulerConfig config;
  config.block_tokens = 1 << bytes->between(0, 4);
  config.num_blocks = bytes->between(2, 64);
  config.max_num_seqs = bytes->between(1, 8);
  config.max_num_batched_tokens = bytes->between(1, 80);
  config.max_model_len = bytes->between(4, 200);
  const int32_t flags = bytes->next();
  config.enable_prefix_caching = (flags & 1) == 0;
  config.static_batching = (flags & 6) == 6;
  config.prefix_hash_bits = (flags & 8) == 0 ? 128 : (flags >> 4) & 3;
  config.priority_aging_steps = (flags & 64) == 0 ? 20 : 0;
  config.max_waiting = 32;
  // As few as may be, or as many as one likes.
  if ((flags & 128) == 0) config.max_logit_rows = config.max_num_seqs;
  config.end_ids = {0};
  return config;
}

// Prompts share beginnings often, and a cut or changed tail often too.
Request read_request(Bytes* bytes, const SchedulerConfig& config) {
  Request request;
  const int32_t family = bytes->between(0, 3);
  const int32_t length = bytes->between(1, std::min(config.max_model_len, 120));
  const int32_t own_from = bytes->between(0, length);
  const int32_t tail = bytes->next();
  for (int32_t i = 0; i < length; ++i) {
    const int32_t token = i < own_from ? family * 7 + i * 3 : tail + i * 5;
    request.prompt_ids.push_back(token % kVocab);
  }
  SamplingParams& sampling = request.sampling;
  const int32_t shape = bytes->next();
  sampling.max_tokens = shape % 13 == 0 ? std::numeric_limits<int32_t>::max() : shape % 60;
  if (shape % 3 == 0) sampling.min_tokens = shape % 7;
  if (shape % 5 == 0) sampling.stop_token_ids = {1, 2};
  sampling.ignore_eos = shape % 11 == 0;
  if (shape % 17 == 0) sampling.prompt_logprobs = 0;
  const int32_t width = bytes->next();
  if (width % 4 == 1) sampling.n = 1 + width / 4 % 6;
  if (width % 4 == 2) sampling.num_beams = 1 + width / 4 % 5;
  request.priority = bytes->between(-1, 1);
  if (width >= 200) request.cache_salt = width % 2 == 0 ? "a" : "b";
  return request;
}

class Script {
 public:
  explicit Script(std::span<const uint8_t> bytes)
      : bytes_(bytes), config_(read_config(&bytes_)), sim_(config_, kVocab) {}

  ScriptReport run() {
    while (!bytes_.empty() && fine() && sim_.steps() < kMaxSteps) operation();
    if (fine()) drain();
    if (fine()) compare_with_solo_runs();
    if (report_.error.empty()) report_.error = sim_.error();
    const SchedulerStats stats = sim_.scheduler().stats();
    report_.steps = sim_.steps();
    report_.preemptions = stats.preemptions;
    report_.prefix_hits = stats.prefix_hit_tokens;
    report_.requests = static_cast<int32_t>(requests_.size());
    return report_;
  }

 private:
  struct Added {
    Request request;
    std::vector<SequenceId> ids;
  };

  bool fine() const { return report_.error.empty() && sim_.error().empty(); }
  void fail(std::string what) {
    if (report_.error.empty()) report_.error = std::move(what);
  }

  void operation() {
    const int32_t op = bytes_.next() % 10;
    if (op <= 2) {
      add();
    } else if (op == 3) {
      disturb();
    } else if (op == 4) {
      step(true);
    } else {
      const int32_t count = op == 9 ? bytes_.between(1, 30) : 1;
      for (int32_t i = 0; i < count && fine(); ++i) step(false);
    }
  }

  void add() {
    Request request = read_request(&bytes_, config_);
    if (static_cast<int32_t>(requests_.size()) >= kMaxRequests) return;
    const RequestId id = requests_.size();
    std::vector<SequenceId> ids = sim_.add(id, request);
    if (ids.empty()) return;
    const auto length = static_cast<int64_t>(request.prompt_ids.size());
    const int64_t longest =
        std::min<int64_t>(length + request.sampling.max_tokens, config_.max_model_len);
    // Alone a sequence computes what it has, perhaps once more, and then a token a step.
    // Logits of a whole prompt may come a row a step.
    if (request.sampling.prompt_logprobs >= 0) bound_ += 2 * length;
    bound_ += static_cast<int64_t>(ids.size()) * (4 + 2 * longest / config_.max_num_batched_tokens +
                                                  2 * (longest - length + 1) + longest);
    requests_.push_back({std::move(request), std::move(ids)});
  }

  void disturb() {
    const int32_t which = bytes_.next();
    if (requests_.empty()) return;
    const size_t request = static_cast<size_t>(which / 2) % requests_.size();
    if (which % 2 == 0) {
      sim_.cancel(request);
    } else {
      const std::vector<SequenceId>& ids = requests_[request].ids;
      sim_.finish(ids[static_cast<size_t>(which / 8) % ids.size()]);
    }
    verify();
  }

  void step(bool disturbed) {
    const bool work = !sim_.scheduler().idle();
    const bool ran = sim_.step([&] {
      if (!disturbed) return;
      disturb();
      if (bytes_.next() % 2 == 0) add();
    });
    if (fine() && work && !ran) fail("live requests, but an empty step");
  }

  void verify() {
    if (Status s = sim_.scheduler().check_integrity(); !s.ok()) fail(s.message());
  }

  void drain() {
    const int64_t limit = sim_.steps() + bound_;
    while (!sim_.scheduler().idle() && fine() && sim_.steps() <= limit) step(false);
    if (!fine()) return;
    if (!sim_.scheduler().idle()) fail(fmt::format("not done after {} more steps", bound_));
    sim_.step();  // lets go of what ended last
    const SchedulerStats stats = sim_.scheduler().stats();
    if (stats.free_blocks != config_.num_blocks) fail("blocks are lost");
    if (stats.running != 0 || stats.waiting != 0) fail("sequences are left");
    for (const auto& [id, result] : sim_.results()) {
      if (result.ends != 1) fail(fmt::format("sequence {} ended {} times", id, result.ends));
    }
  }

  // The same request alone, in one chunk, without sharing between requests.
  void compare_with_solo_runs() {
    for (const Added& added : requests_) {
      SchedulerConfig config = config_;
      config.num_blocks = 128;
      config.block_tokens = 16;
      config.max_num_seqs = 16;
      config.max_num_batched_tokens = 512;
      config.max_logit_rows = 0;
      config.enable_prefix_caching = false;
      config.static_batching = false;
      Simulator solo(config, kVocab);
      Request request = added.request;
      const std::vector<SequenceId> ids = solo.add(1, request);
      if (ids.size() != added.ids.size() || !solo.run(1000)) return fail("solo: " + solo.error());
      for (size_t i = 0; i < ids.size(); ++i) {
        if (!same(sim_.result(added.ids[i]), solo.result(ids[i]), request)) {
          fail(fmt::format("sequence {} differs from its solo run", added.ids[i]));
        }
      }
    }
  }

  bool same(const SimResult& here, const SimResult& solo, const Request& request) const {
    if (here.tokens.size() > solo.tokens.size()) return false;
    // A beam's tokens change with its parents, so a cancelled group has no place in its solo run.
    const bool interrupted =
        here.finish == FinishReason::kCancelled || here.tokens.size() < solo.tokens.size();
    if (interrupted && request.sampling.num_beams > 1) return true;
    if (!std::ranges::equal(here.tokens, std::span(solo.tokens).first(here.tokens.size()))) {
      return false;
    }
    if (here.tokens.size() == solo.tokens.size()) return true;
    // Ended before: cancelled or finished by the caller, or the pool was the limit of an unset
    // max_tokens.
    return here.finish != FinishReason::kLength ||
           request.sampling.max_tokens == std::numeric_limits<int32_t>::max();
  }

  Bytes bytes_;
  SchedulerConfig config_;
  Simulator sim_;
  std::vector<Added> requests_;  // by request id
  int64_t bound_ = 0;
  ScriptReport report_;
};

}  // namespace

ScriptReport run_script(std::span<const uint8_t> bytes) { return Script(bytes).run(); }

}  // namespace pelton::sched::testing
