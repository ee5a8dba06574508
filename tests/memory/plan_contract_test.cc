// The plan is a contract: what a process really holds, with every KV block in use, is at most what
// was planned and at least 97 % of it. Each case runs in a child process of its own, so that one's
// heap does not count in another's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/process_memory.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "tests/support/models.h"
#include "tests/support/source_root.h"

namespace pelton::engine {
namespace {

struct Report {
  bool ok = false;
  size_t planned = 0;
  size_t peak = 0;
  int64_t blocks = 0;
  int64_t most_blocks_held = 0;
  char error[256] = {};
};

Report fail(Report report, const std::string& message) {
  message.copy(report.error, sizeof(report.error) - 1);
  return report;
}

// Requests with prompts of their own, sampled with every stage that takes memory, until each block
// was in use at once.
Report fill_cache(const std::filesystem::path& path, size_t limit, int32_t max_num_seqs) {
  Report report;
  EngineOptions options;
  options.threads = 2;
  options.memory_limit = limit;
  options.max_num_seqs = max_num_seqs;
  if (path.extension() != ".gguf") options.kv_cache_dtype = kernels::KvFormat::kF32;
  options.max_num_batched_tokens = 512;
  options.max_waiting = 1 << 20;
  options.max_model_len = 1024;
  auto files = ModelFiles::open(path);
  if (!files.ok()) return fail(report, files.status().to_string());
  auto engine = Engine::load(std::move(files).value(), options);
  if (!engine.ok()) return fail(report, engine.status().to_string());
  const runtime::MemoryPlan& plan = (*engine)->plan();
  report.planned = plan.anonymous();
  report.blocks = plan.num_blocks;
  Random random(5);
  int64_t submitted = 0;
  while (submitted < plan.kv_tokens() * 9 / 8) {
    Request request;
    for (int i = 0; i < 700; ++i) {
      request.prompt_ids.push_back(static_cast<int32_t>(
          random.below(static_cast<uint64_t>((*engine)->config().vocab_size))));
    }
    request.sampling.max_tokens = 32;
    request.sampling.ignore_eos = true;
    request.sampling.top_p = 0.9f;
    request.sampling.seed = 1;
    request.sampling.logprobs = 1;
    submitted += std::ssize(request.prompt_ids);
    if (auto id = (*engine)->submit(std::move(request), nullptr); !id.ok())
      return fail(report, id.status().to_string());
  }
  while ((*engine)->step()) {
    report.peak = std::max(report.peak, anonymous_resident_bytes());
    const sched::SchedulerStats stats = (*engine)->metrics().scheduler;
    const int64_t held = stats.total_blocks - stats.free_blocks + stats.cached_blocks;
    report.most_blocks_held = std::max(report.most_blocks_held, held);
  }
  report.ok = true;
  return report;
}

Report in_child(const std::filesystem::path& path, size_t limit, int32_t max_num_seqs) {
  int ends[2];
  if (pipe(ends) != 0) return fail({}, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    const Report report = fill_cache(path, limit, max_num_seqs);
    const bool written = write(ends[1], &report, sizeof(report)) == sizeof(report);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Report report;
  if (read(ends[0], &report, sizeof(report)) != sizeof(report))
    report = fail({}, "the child ended without a report");
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return report;
}

struct Case {
  std::string model;
  size_t mebibytes;
  int32_t max_num_seqs;
};

class PlanContract : public ::testing::TestWithParam<Case> {};

TEST_P(PlanContract, PeakIsWithinThePlanAndCloseToIt) {
  const auto path = GetParam().model == "runnel-2m"
                        ? std::optional(pelton::source_root() / "tests/data/runnel-2m")
                        : pelton::testing::find_model(GetParam().model);
  if (!path) GTEST_SKIP() << GetParam().model << " is not in PELTON_MODELS";
  const Report report = in_child(*path, GetParam().mebibytes << 20, GetParam().max_num_seqs);
  ASSERT_TRUE(report.ok) << report.error;
  EXPECT_GE(report.most_blocks_held, report.blocks * 99 / 100) << "the cache was not full";
  EXPECT_LE(report.peak, report.planned);
  EXPECT_LE(static_cast<double>(report.planned), 1.03 * static_cast<double>(report.peak))
      << "planned " << report.planned << " peak " << report.peak;
}

INSTANTIATE_TEST_SUITE_P(Models, PlanContract,
                         ::testing::Values(Case{"runnel-2m", 64, 40}, Case{"runnel-2m", 72, 40},
                                           Case{"runnel-2m", 80, 40}, Case{"runnel-15m", 96, 16},
                                           Case{"runnel-15m", 112, 16}, Case{"runnel-15m", 128, 16},
                                           Case{"SmolLM2-135M-Instruct.Q4_1.gguf", 240, 8},
                                           Case{"SmolLM2-135M-Instruct.Q4_1.gguf", 256, 8},
                                           Case{"SmolLM2-135M-Instruct.Q4_1.gguf", 272, 8}),
                         [](const auto& info) {
                           std::string name =
                               info.param.model.substr(0, info.param.model.find('.'));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::to_string(info.param.mebibytes) + "_MiB";
                         });

}  // namespace
}  // namespace pelton::engine
