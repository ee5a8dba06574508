#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"

namespace pelton::cli {
MachineMemory machine_memory() {
  MachineMemory bytes;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib) {
    std::getline(meminfo, unit);
    if (key == "MemTotal:") bytes.total = kib << 10;
    if (key == "MemAvailable:") bytes.available = kib << 10;
  }
  if (const auto limit = cgroup_limits().memory_bytes) {
    bytes.total = std::min(bytes.total, *limit);
    bytes.available = std::min(bytes.available, *limit);
  }
  return bytes;
}

Status run_plan(const PlanOptions& options) {
  auto engine_opts = engine_options(options.common, /*only_plans=*/true);
  if (!engine_opts.ok()) return engine_opts.status();
  auto files = open_files(options.common);
  if (!files.ok()) return files.status();
  // Where the GPU is not at hand, the plan is for the expected one.
  if (runtime::built_with_cuda()) static_cast<void>(engine::open_backend(&*engine_opts));
  auto planned = engine::plan_memory(**files, &*engine_opts);
  if (!planned.ok()) return planned.status();
  const runtime::MemoryPlan& plan = *planned;
  const MachineMemory memory = machine_memory();
  const bool fits = plan.anonymous() <= memory.available;  // the device's part fits or is refused
  const int64_t tokens = plan.kv_tokens();
  const int64_t contexts = tokens / std::max<int64_t>(1, engine_opts->max_model_len);
  if (options.common.json) {
    Json answer = answer_header("plan", **files, *engine_opts);
    const auto row = [&](const char* name, size_t value) {
      answer["rows"].push_back(answer_row(name, static_cast<double>(value), "B"));
    };
    row("weights", plan.weights + plan.made);
    row("kv_cache", plan.kv_cache);
    row("scratch", plan.scratch);
    row("host", plan.host);
    row("anonymous", plan.anonymous());
    if (plan.on_device) {
      row("device", plan.device());
      row("graphs", plan.graphs);
    }
    row("mapped", (*files)->source().mapped_bytes());
    row("kv_bytes_per_token", plan.kv_token_bytes);
    row("weights_read_per_token", plan.streamed_weights);
    answer["plan"] = {{"fits", fits},
                      {"available_bytes", memory.available},
                      {"kv_blocks", plan.num_blocks},
                      {"block_size", plan.block_tokens},
                      {"kv_tokens", tokens},
                      {"full_contexts", contexts},
                      {"max_model_len", engine_opts->max_model_len},
                      {"max_num_seqs", engine_opts->max_num_seqs},
                      {"max_num_batched_tokens", engine_opts->max_num_batched_tokens},
                      {"parameters", plan.parameters}};
    return print(answer.dump() + "\n");
  }
  std::string text =
      fmt::format("{}: {}, {:.1f} M parameters\n\n", printable((*files)->display_name()),
                  (*files)->config().model_type, static_cast<double>(plan.parameters) / 1e6);
  const auto line = [&](const char* name, size_t bytes, const std::string& note) {
    text += fmt::format("  {:<22} {:>12}   {}\n", name, format_bytes(bytes), note);
  };
  line("weights", plan.weights + plan.made,
       plan.on_device  ? "on the device"
       : plan.made > 0 ? "random ones of the shape"
                       : "repacked for this machine's kernels");
  line("KV cache", plan.kv_cache,
       fmt::format("{} blocks of {} tokens, {} a token, {}", plan.num_blocks, plan.block_tokens,
                   format_bytes(plan.kv_token_bytes),
                   kernels::kv_format_name(engine_opts->kv_cache_dtype)));
  line("step scratch", plan.scratch,
       fmt::format("for {} tokens a step", engine_opts->max_num_batched_tokens));
  line("tables and program", plan.host, "tokenizer, threads, runtime");
  if (plan.on_device) {
    line("device in all", plan.device(),
         "of " + runtime::PlanTarget(engine_opts->backend.get()).caps.name +
             fmt::format(": weights, cache, scratch, inputs, {} of captured steps",
                         format_bytes(plan.graphs)));
    line("pinned", plan.pinned, "host memory the device copies to and from");
  }
  line("anonymous in all", plan.anonymous(),
       fmt::format("of {} available", format_bytes(memory.available)));
  line("used where mapped", plan.mapped_weights, "file pages, reclaimable");
  line("read per token", plan.streamed_weights, "weights that one decoded token streams");
  text += fmt::format("\n{}: {} users with {} tokens each, or {} tokens in all.\n",
                      fits ? "It fits" : "It does NOT fit", contexts, engine_opts->max_model_len,
                      tokens);
  if (!fits) {
    text += fmt::format(
        "{} are missing: lower --max-num-seqs or --max-model-len, or set --memory {}.\n",
        format_bytes(plan.anonymous() - memory.available), format_bytes(memory.available / 10 * 9));
  }
  return print(text);
}

}  // namespace pelton::cli
