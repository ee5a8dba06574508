#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "sched/testing/requests.h"

namespace pelton::sched {
namespace {

using testing::expected;
using testing::make_request;
using testing::Simulator;
using testing::small_config;

constexpr int32_t kUnset = std::numeric_limits<int32_t>::max();

TEST(Scheduler, RunsOneRequestToItsEnd) {
  Simulator sim(small_config());
  const Request request = make_request(20, 10);
  const auto ids = sim.add(1, request);
  ASSERT_EQ(ids.size(), 1u);
  ASSERT_TRUE(sim.run(100)) << sim.error();
  EXPECT_EQ(sim.result(ids[0]).finish, FinishReason::kLength);
  EXPECT_EQ(sim.result(ids[0]).tokens, expected(sim, request, 30));
  EXPECT_EQ(sim.steps(), 10);
  EXPECT_EQ(sim.scheduler().stats().free_blocks, 128);
  EXPECT_EQ(sim.scheduler().stats().scheduled_tokens, 29);
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  SchedulerConfig config = small_config();
  config.num_blocks = 16;  // 128 tokens
  Scheduler scheduler(config);
  auto code = [&](const Request& request) { return scheduler.add(1, request).status().code(); };
  EXPECT_EQ(code(make_request(0, 1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(make_request(256, 1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(make_request(10, -1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(make_request(129, 1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(make_request(100, 30)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(make_request(10, 100000)), StatusCode::kInvalidArgument);
  Request beams = make_request(10, 20);
  beams.sampling.num_beams = 9;
  EXPECT_EQ(code(beams), StatusCode::kInvalidArgument);
  beams = make_request(20, 40);  // 2 shared blocks and 6 of each of 4 beams
  beams.sampling.num_beams = 4;
  EXPECT_EQ(code(beams), StatusCode::kInvalidArgument);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(code(make_request(128, 1)), StatusCode::kOk);
}

TEST(Scheduler, RefusesWhenTheQueueIsFull) {
  SchedulerConfig config = small_config();
  config.max_waiting = 2;
  Simulator sim(config);
  EXPECT_EQ(sim.add(1, make_request(4, 4)).size(), 1u);
  EXPECT_EQ(sim.add(2, make_request(4, 4)).size(), 1u);
  EXPECT_EQ(sim.scheduler().add(3, make_request(4, 4)).status().code(),
            StatusCode::kResourceExhausted);
  sim.cancel(1);
  EXPECT_EQ(sim.add(4, make_request(4, 4)).size(), 1u);
  sim.step();  // both run: the queue is empty
  EXPECT_EQ(sim.add(5, make_request(4, 4)).size(), 1u);
  ASSERT_TRUE(sim.run(20)) << sim.error();
}

TEST(Scheduler, PromptOnlyEndsWithLengthAndNoToken) {
  // Lengths of which the last step holds one row, too.
  const int32_t step = small_config().max_num_batched_tokens;
  for (const int32_t length : {1, 2, step, step + 1, 2 * step + 1}) {
    for (int32_t width : {1, 3}) {
      for (bool beams : {false, true}) {
        Simulator sim(small_config());
        Request request = make_request(length, 0);
        request.sampling.prompt_logprobs = 1;
        (beams ? request.sampling.num_beams : request.sampling.n) = width;
        int32_t rows = 0;
        sim.observer = [&](const StepPlan& plan) {
          for (const SequenceStep& part : plan.sequences) {
            EXPECT_FALSE(part.samples);
            EXPECT_TRUE(part.all_logits) << length;
            rows += static_cast<int32_t>(part.tokens.size());
          }
        };
        const auto ids = sim.add(1, request);
        ASSERT_TRUE(sim.run(10)) << sim.error();
        EXPECT_EQ(rows, length);
        for (SequenceId id : ids) {
          EXPECT_EQ(sim.result(id).finish, FinishReason::kLength);
          EXPECT_EQ(sim.result(id).tokens, request.prompt_ids);
        }
      }
    }
  }
}

// What a step may compute in logits is planned memory: prompts that want all of theirs share it.
TEST(Scheduler, LogitsOfPromptsKeepToTheLimit) {
  SchedulerConfig config = small_config();
  config.max_logit_rows = config.max_num_seqs;
  Simulator sim(config);
  Request asks = make_request(50, 4);
  asks.sampling.prompt_logprobs = 1;
  sim.observer = [&](const StepPlan& plan) {
    int32_t logits = 0;
    for (const SequenceStep& step : plan.sequences) {
      const auto count = static_cast<int32_t>(step.tokens.size());
      logits += step.all_logits ? count : static_cast<int32_t>(step.samples);
    }
    EXPECT_LE(logits, config.max_num_seqs);
  };
  std::vector<SequenceId> ids;
  for (RequestId id = 1; id <= 3; ++id) ids.push_back(sim.add(id, asks).front());
  ids.push_back(sim.add(4, make_request(30, 20)).front());
  ASSERT_TRUE(sim.run(400)) << sim.error();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sim.result(ids[i]).tokens.size(), 54u);
  EXPECT_EQ(sim.result(ids[3]).tokens.size(), 50u);
}

TEST(Scheduler, EndsAtTheContextsEnd) {
  SchedulerConfig config = small_config();
  for (int32_t blocks : {128, 10}) {
    config.num_blocks = blocks;
    Simulator sim(config);
    const Request request = make_request(20, kUnset);
    const auto ids = sim.add(1, request);
    ASSERT_TRUE(sim.run(300)) << sim.error();
    const int32_t length = std::min(256, blocks * 8 + 1);
    EXPECT_EQ(sim.result(ids[0]).finish, FinishReason::kLength);
    EXPECT_EQ(sim.result(ids[0]).tokens, expected(sim, request, length));
  }
}

TEST(Scheduler, StopsAtEndIdsAndStopIds) {
  SchedulerConfig config = small_config();
  Simulator plain(config);
  const Request base = make_request(12, 40);
  const std::vector<int32_t> free_run = expected(plain, base, 52);
  config.end_ids = {free_run[20]};
  const int32_t stop = free_run[30];
  auto run = [&](auto change) {
    Simulator sim(config);
    Request request = base;
    change(&request.sampling);
    const auto ids = sim.add(1, request);
    EXPECT_TRUE(sim.run(100)) << sim.error();
    return sim.result(ids[0]);
  };
  const auto at_end = run([](SamplingParams*) {});
  EXPECT_EQ(at_end.tokens.size(), 21u);
  EXPECT_EQ(at_end.finish, FinishReason::kStop);
  const auto ignored = run([](SamplingParams* p) { p->ignore_eos = true; });
  EXPECT_EQ(ignored.tokens, free_run);
  EXPECT_EQ(ignored.finish, FinishReason::kLength);
  const auto at_stop = run([&](SamplingParams* p) {
    p->ignore_eos = true;
    p->stop_token_ids = {stop};
  });
  EXPECT_EQ(at_stop.tokens.size(), 31u);
  EXPECT_EQ(at_stop.finish, FinishReason::kStop);
  const auto later = run([&](SamplingParams* p) {
    p->min_tokens = 12;
    p->stop_token_ids = {stop};
  });
  EXPECT_EQ(later.tokens.size(), 31u);
  const auto on_time = run([](SamplingParams* p) { p->min_tokens = 9; });
  EXPECT_EQ(on_time.tokens.size(), 21u);
}

TEST(Scheduler, ALongPromptIsCutAndDoesNotBlockAShortOne) {
  for (int32_t prompt : {65, 128, 500, 1000}) {
    SchedulerConfig config = small_config();
    config.max_model_len = 1100;
    config.num_blocks = 200;
    Simulator sim(config);
    const Request long_one = make_request(prompt, 5);
    const Request short_one = make_request(10, 5, 2);
    const auto a = sim.add(1, long_one);
    const auto b = sim.add(2, short_one);
    ASSERT_TRUE(sim.run(60)) << sim.error();
    EXPECT_EQ(sim.result(a[0]).tokens, expected(sim, long_one, prompt + 5));
    EXPECT_EQ(sim.result(b[0]).tokens, expected(sim, short_one, 15));
    EXPECT_LE(sim.most_rows(), 64);
  }
}

TEST(Scheduler, DecodesGoBeforePrompts) {
  Simulator sim(small_config());
  const auto running = sim.add(1, make_request(4, 20));
  sim.step();
  sim.add(2, make_request(200, 4, 2));
  sim.step();
  sim.observer = [&](const StepPlan& plan) {
    ASSERT_EQ(plan.sequences.size(), 2u);
    EXPECT_EQ(plan.sequences[0].sequence, running[0]);
    EXPECT_EQ(plan.sequences[0].tokens.size(), 1u);
    EXPECT_EQ(plan.sequences[1].tokens.size(), 63u);
  };
  sim.step();
}

TEST(Scheduler, PrefersLowPriorityNumbersAndThenArrival) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 1;
  Simulator sim(config);
  std::vector<SequenceId> ids;
  for (int32_t priority : {1, 0, 1, -1, 0}) {
    Request request = make_request(8, 2, static_cast<uint64_t>(ids.size()));
    request.priority = priority;
    ids.push_back(sim.add(ids.size(), request).at(0));
  }
  ASSERT_TRUE(sim.run(50)) << sim.error();
  std::vector<SequenceId> order = ids;
  std::ranges::sort(order, {}, [&](SequenceId id) { return sim.result(id).ended_step; });
  EXPECT_EQ(order, (std::vector{ids[3], ids[1], ids[4], ids[0], ids[2]}));
}

TEST(Scheduler, NoClassStarvesBehindABetterOne) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 1;
  config.priority_aging_steps = 30;
  Simulator sim(config);
  Request request = make_request(8, 2);
  request.priority = 1;
  const auto patient = sim.add(0, request);
  request.priority = 0;
  for (RequestId id = 1; id < 100; ++id) {
    request.prompt_ids[0] = static_cast<int32_t>(id);
    sim.add(id, request);
    sim.step();
  }
  ASSERT_EQ(sim.result(patient[0]).ends, 1);
  EXPECT_GT(sim.result(patient[0]).ended_step, 30);
  EXPECT_LT(sim.result(patient[0]).ended_step, 80);
}

TEST(Scheduler, StaticBatchesWaitForTheirLongest) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 2;
  int64_t steps[2] = {};
  for (bool fixed : {false, true}) {
    config.static_batching = fixed;
    Simulator sim(config);
    std::vector<SequenceId> ids;
    for (uint64_t i = 0; i < 6; ++i) {
      ids.push_back(sim.add(i, make_request(4, i % 2 == 0 ? 40 : 2, i)).at(0));
    }
    ASSERT_TRUE(sim.run(500)) << sim.error();
    steps[fixed ? 1 : 0] = sim.steps();
    if (fixed) {
      EXPECT_GE(sim.result(ids[3]).ended_step, 40);
    }
  }
  EXPECT_EQ(steps[1], 120);
  EXPECT_LT(steps[0], 90);
}

// One request of 40 tokens, one of 2: the second's row goes on, of no use, and asks for no logits.
TEST(Scheduler, StaticBatchesArePaddedToTheirLongest) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 2;
  config.static_batching = true;
  Simulator sim(config);
  const SequenceId longer = sim.add(1, make_request(4, 40, 1)).at(0);
  const SequenceId shorter = sim.add(2, make_request(4, 2, 2)).at(0);
  int padded = 0;
  sim.observer = [&](const StepPlan& plan) {
    for (const SequenceStep& step : plan.sequences) {
      if (step.sequence != shorter || sim.result(shorter).ends == 0) continue;
      ++padded;
      EXPECT_EQ(step.tokens.size(), 1u);
      EXPECT_EQ(step.first_position, 5);
      EXPECT_FALSE(step.samples);
    }
  };
  while (sim.result(longer).ends == 0 && sim.error().empty()) {
    sim.step();
    const SchedulerStats stats = sim.scheduler().stats();
    if (sim.result(shorter).ends > 0 && sim.result(longer).ends == 0) {
      EXPECT_EQ(stats.running, 1);
      EXPECT_EQ(stats.waiting, 0);
    }
  }
  ASSERT_EQ(sim.error(), "");
  const SchedulerStats stats = sim.scheduler().stats();
  EXPECT_EQ(padded, 38);
  EXPECT_EQ(stats.padding_tokens, 38);
  EXPECT_EQ(stats.scheduled_tokens, 4 + 39 + 4 + 1);
  EXPECT_EQ(stats.free_blocks, config.num_blocks);
  EXPECT_TRUE(sim.scheduler().idle());
}

// Padding is worth nothing: its blocks go before anybody is preempted.
TEST(Scheduler, PaddingGivesWay) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 2;
  config.static_batching = true;
  config.enable_prefix_caching = false;
  config.num_blocks = 4;
  Simulator sim(config);
  const int32_t room = config.num_blocks * config.block_tokens;
  const SequenceId longer = sim.add(1, make_request(4, room - 4, 1)).at(0);
  sim.add(2, make_request(4, 2, 2));
  ASSERT_TRUE(sim.run(500)) << sim.error();
  EXPECT_EQ(sim.result(longer).tokens.size(), static_cast<size_t>(room));
  EXPECT_EQ(sim.scheduler().stats().preemptions, 0);
  EXPECT_GT(sim.scheduler().stats().padding_tokens, 0);
  EXPECT_EQ(sim.scheduler().stats().free_blocks, config.num_blocks);
}

TEST(Scheduler, ACancelledRequestOfAStaticBatchFreesItsPadding) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 2;
  config.static_batching = true;
  Simulator sim(config);
  sim.add(1, make_request(4, 40, 1));
  const SequenceId shorter = sim.add(2, make_request(4, 2, 2)).at(0);
  while (sim.result(shorter).ends == 0) sim.step();
  sim.step([&] { sim.cancel(1); });
  EXPECT_EQ(sim.error(), "");
  EXPECT_TRUE(sim.scheduler().idle());
  EXPECT_EQ(sim.scheduler().stats().free_blocks, config.num_blocks);
}

TEST(Scheduler, AHitEqualsAMiss) {
  SchedulerConfig config = small_config();
  for (bool caching : {true, false}) {
    config.enable_prefix_caching = caching;
    Simulator sim(config);
    const Request request = make_request(48, 12);
    Request other_tail = request;
    other_tail.prompt_ids[45] = 7;
    const Request block_prefix = [&] {
      Request cut = request;
      cut.prompt_ids.resize(32);
      return cut;
    }();
    RequestId next = 0;
    auto run = [&](std::vector<Request> requests, std::vector<int32_t> cached) {
      std::vector<SequenceId> ids;
      std::vector<int32_t> found;
      for (const Request& r : requests) ids.push_back(sim.add(next++, r).at(0));
      sim.step();
      for (SequenceId id : ids) found.push_back(sim.scheduler().cached_prompt_tokens(id));
      EXPECT_TRUE(sim.run(100)) << sim.error();
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto length = static_cast<int32_t>(requests[i].prompt_ids.size()) + 12;
        EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, requests[i], length));
        EXPECT_EQ(found[i], caching ? cached[i] : 0) << next;
      }
    };
    run({request, request}, {0, 0});  // side by side: neither finds the other
    run({request}, {40});             // all but the block of the last token
    run({other_tail}, {40});          // position 45 is in the sixth block
    run({request, other_tail}, {40, 40});
    run({block_prefix}, {24});
  }
}

TEST(Scheduler, WeakHashesChangeNothing) {
  for (int32_t bits : {0, 1, 4}) {
    SchedulerConfig config = small_config();
    config.prefix_hash_bits = bits;
    Simulator sim(config);
    std::vector<Request> requests;
    std::vector<SequenceId> ids;
    for (uint64_t i = 0; i < 30; ++i) {
      requests.push_back(make_request(40, 8, i % 5));
      if (i % 3 == 0) requests.back().prompt_ids[i % 40] = 3;
      if (i % 7 == 0) requests.back().cache_salt = "other";
      ids.push_back(sim.add(i, requests.back()).at(0));
    }
    ASSERT_TRUE(sim.run(1000)) << sim.error();
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, requests[i], 48));
    }
    EXPECT_GT(sim.scheduler().stats().prefix_hit_tokens, 0);
  }
}

TEST(Scheduler, SaltsKeepTenantsApart) {
  Simulator sim(small_config());
  Request request = make_request(40, 4);
  for (const char* salt : {"a", "b", "a"}) {
    request.cache_salt = salt;
    sim.add(static_cast<RequestId>(sim.steps()), request);
    ASSERT_TRUE(sim.run(100)) << sim.error();
  }
  EXPECT_EQ(sim.scheduler().stats().prefix_hit_tokens, 32);
}

TEST(Scheduler, PromptLogitsComeForEveryRowThoughThePrefixIsKnown) {
  Simulator sim(small_config());
  Request request = make_request(150, 4);
  sim.add(1, request);
  ASSERT_TRUE(sim.run(100)) << sim.error();
  request.sampling.prompt_logprobs = 3;
  request.sampling.n = 3;
  std::set<int32_t> rows;
  sim.observer = [&](const StepPlan& plan) {
    for (const SequenceStep& step : plan.sequences) {
      for (size_t i = 0; step.all_logits && i < step.tokens.size(); ++i) {
        EXPECT_TRUE(rows.insert(step.first_position + static_cast<int32_t>(i)).second);
      }
    }
  };
  sim.add(2, request);
  ASSERT_TRUE(sim.run(100)) << sim.error();
  EXPECT_EQ(rows.size(), 150u);
}

TEST(Scheduler, CompletionsShareThePromptAndStopApart) {
  for (int32_t n = 1; n <= 16; ++n) {
    for (int32_t prompt : {30, 32, 33}) {
      SchedulerConfig config = small_config();
      config.end_ids = {0, 1, 2};
      Simulator sim(config, 60);
      Request request = make_request(prompt, 40);
      for (int32_t& token : request.prompt_ids) token %= 60;
      request.sampling.n = n;
      const auto ids = sim.add(1, request);
      sim.step();
      sim.step();
      if (n == 8) {  // the prompt's blocks once, and at most two of each one's own
        EXPECT_GE(sim.scheduler().stats().free_blocks, 128 - 4 - 2 * 8);
      }
      ASSERT_TRUE(sim.run(1000)) << sim.error();
      for (int32_t i = 0; i < n; ++i) {
        const auto& result = sim.result(ids[static_cast<size_t>(i)]);
        EXPECT_EQ(result.tokens,
                  expected(sim, request, prompt + 40, static_cast<uint64_t>(i), config.end_ids));
        EXPECT_EQ(result.ends, 1);
      }
      EXPECT_EQ(sim.scheduler().stats().free_blocks, 128);
    }
  }
}

TEST(Scheduler, AnotherCompletionTakesOverThePromptOfAnEndedOne) {
  Simulator sim(small_config());
  Request request = make_request(150, 5);
  request.sampling.n = 3;
  const auto ids = sim.add(1, request);
  sim.step();
  sim.finish(ids[0]);
  ASSERT_TRUE(sim.run(100)) << sim.error();
  for (size_t i : {1u, 2u}) {
    EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, request, 155, i));
  }
}

TEST(Scheduler, BeamsEndAtMaxTokens) {
  for (bool ends : {false, true}) {
    SchedulerConfig config = small_config();
    if (ends) config.end_ids = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};  // beams do not end by themselves
    Simulator sim(config, 20);
    Request request = make_request(16, 8);
    for (int32_t& token : request.prompt_ids) token %= 20;
    request.sampling.num_beams = 4;
    const auto ids = sim.add(1, request);
    ASSERT_EQ(ids.size(), 4u);
    ASSERT_TRUE(sim.run(100)) << sim.error();
    EXPECT_EQ(sim.steps(), 8);
    for (SequenceId id : ids) {
      EXPECT_EQ(sim.result(id).tokens.size(), 24u);
      EXPECT_EQ(sim.result(id).finish, FinishReason::kLength);
    }
    EXPECT_EQ(sim.scheduler().stats().free_blocks, 128);
  }
}

TEST(Scheduler, BeamsSurvivePreemptionAsTheyWere) {
  auto run = [](int32_t blocks, int64_t* preemptions) {
    SchedulerConfig config = small_config();
    config.num_blocks = blocks;
    Simulator sim(config);
    for (uint64_t i = 0; i < 6; ++i) {
      Request request = make_request(10 + static_cast<int32_t>(i * 5), 40, i);
      (i % 2 == 0 ? request.sampling.n : request.sampling.num_beams) = 4;
      EXPECT_EQ(sim.add(i, request).size(), 4u);
    }
    EXPECT_TRUE(sim.run(3000)) << sim.error();
    *preemptions = sim.scheduler().stats().preemptions;
    EXPECT_EQ(sim.scheduler().stats().free_blocks, blocks);
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& [id, result] : sim.results()) tokens.push_back(result.tokens);
    return tokens;
  };
  int64_t many = 0;
  int64_t none = 0;
  EXPECT_EQ(run(36, &many), run(400, &none));
  EXPECT_GT(many, 0);
  EXPECT_EQ(none, 0);
}

TEST(Scheduler, ACallerThatForgetsATokenIsToldSo) {
  Scheduler scheduler(small_config());
  const auto ids = *scheduler.add(1, make_request(4, 4));
  const StepPlan& plan = scheduler.plan();
  EXPECT_THROW(scheduler.commit(plan, {}), InternalError);
}

TEST(Scheduler, AFailedStepEndsItsRequestsAndNoOthers) {
  Scheduler scheduler(small_config());
  const auto failing = *scheduler.add(1, make_request(4, 4));
  const StepPlan& plan = scheduler.plan();
  const auto waiting = *scheduler.add(2, make_request(4, 4));
  const auto updates = scheduler.cancel(1, FinishReason::kError);
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].finish, FinishReason::kError);
  EXPECT_TRUE(scheduler.cancel(1).empty());
  EXPECT_TRUE(scheduler.commit(plan, {}).empty());
  EXPECT_EQ(scheduler.stats().free_blocks, 128);
  EXPECT_EQ(scheduler.plan().sequences.at(0).sequence, waiting[0]);
  EXPECT_TRUE(scheduler.tokens(failing[0]).empty());
}

}  // namespace
}  // namespace pelton::sched
