#include "cli/eval.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "cli/tokenize.h"
#include "diag/logits.h"
#include "diag/prove.h"
#include "diag/quality.h"

namespace pelton::cli {
namespace {

// A prompt of our own for --prove: prose, code, other scripts, digits.
constexpr const char* kProofText =
    "A Pelton wheel turns a narrow, fast stream of water into work. The jet strikes double buckets "
    "on the rim and leaves "
    "them almost at rest, so that nearly all of its energy stays in the wheel.\n"
    "def efficiency(jet, bucket):\n    return 2 * bucket * (jet - bucket) / (jet * jet)\n"
    "Für 1879 und 3,14159: die Turbine läuft. 水轮机把水流变成功。 Турбина вращается. 42 + 58 = "
    "100.\n"
    "for i in range(10):\n    print(i, efficiency(100.0, 10.0 * i))\n";

constexpr int32_t kProofDecode = 56;

diag::Progress progress_bar(const char* what) {
  if (isatty(STDERR_FILENO) == 0) return nullptr;
  return [what](int done, int of) {
    std::fprintf(stderr, "\r%s %d / %d%s", what, done, of, done == of ? "\r\033[K" : "");
  };
}

// Every row of a window may want its logits at once: chunks are kept short, so that scratch stays
// small.
engine::EngineOptions for_all_rows(engine::EngineOptions options, int32_t window) {
  options.max_num_seqs = 1;
  options.max_model_len = window;
  options.max_num_batched_tokens = std::min(window, 128);
  options.max_logit_rows = options.max_num_batched_tokens;
  options.enable_prefix_caching = false;
  return options;
}

Result<std::vector<diag::Window>> windows_of(const std::string& path, const engine::Engine& engine,
                                             int32_t window, int32_t limit) {
  auto text = read_text(path);
  if (!text.ok()) return text.status();
  const std::vector<int32_t>& eos = engine.config().eos_token_ids;
  const int32_t end_id = eos.empty() ? engine.tokenizer()->eos_id().value_or(0) : eos.front();
  auto windows =
      diag::cut_windows(diag::encode_documents(*engine.tokenizer(), *text, end_id), window, limit);
  if (!windows.ok()) return windows.status().with_context(path);
  return windows;
}

Status eval_perplexity(const EvalOptions& options, engine::EngineOptions engine_opts) {
  auto files = open_files(options.common);
  if (!files.ok()) return files.status();
  const int32_t window = options.window > 0
                             ? options.window
                             : std::min(1024, (*files)->config().max_position_embeddings);
  auto engine = load_engine(options.common, for_all_rows(engine_opts, window));
  if (!engine.ok()) return engine.status();
  auto windows = windows_of(options.perplexity, **engine, window, options.limit);
  if (!windows.ok()) return windows.status();
  auto result = diag::perplexity(**engine, *windows, progress_bar("window"));
  if (!result.ok()) return result.status();
  const auto tokens = static_cast<int64_t>(windows->size()) * window;
  if (!options.common.json) {
    return print(fmt::format(
        "perplexity {:.4f}   loss {:.6f} nat/token   top-1 {:.2f} %   ({} windows of {} tokens)\n",
        result->perplexity, result->loss, 100 * result->top1_accuracy, windows->size(), window));
  }
  Json answer = answer_header("eval", (*engine)->files(), (*engine)->options());
  answer["rows"] = {answer_row("perplexity", result->perplexity, ""),
                    answer_row("loss", result->loss, "nat/token"),
                    answer_row("top1_accuracy", 100 * result->top1_accuracy, "%")};
  answer["perplexity"] = result->perplexity;
  answer["loss"] = result->loss;
  answer["tokens"] = tokens;
  answer["window_losses"] = result->window_losses;
  return print(answer.dump() + "\n");
}

Status eval_divergence(const EvalOptions& options, engine::EngineOptions engine_opts) {
  CommonOptions base_options = options.common;
  base_options.model = options.kl;
  base_options.quantization = "none";
  base_options.packed_cache.clear();
  base_options.activations = options.kl_activations.empty() ? "f32" : options.kl_activations;
  auto base_engine_opts = engine_options(base_options);
  if (!base_engine_opts.ok()) return base_engine_opts.status();
  int32_t window = options.window;
  if (window == 0) {
    window = 256;
    const CommonOptions* const sides[] = {&base_options, &options.common};
    for (const CommonOptions* side : sides) {
      auto files = open_files(*side);
      if (!files.ok()) return files.status();
      window = std::min(window, (*files)->config().max_position_embeddings);
    }
  }
  auto base = load_engine(base_options, for_all_rows(*base_engine_opts, window));
  if (!base.ok()) return base.status();
  auto model = load_engine(options.common, for_all_rows(engine_opts, window));
  if (!model.ok()) return model.status();
  auto windows = windows_of(options.text, **base, window, options.limit);
  if (!windows.ok()) return windows.status();
  auto result = diag::divergence(**base, **model, *windows, progress_bar("window"));
  if (!result.ok()) return result.status();
  if (!options.common.json) {
    return print(
        fmt::format("mean KL {:.6f} nat   p99 {:.6f}   max {:.6f}   same top-1 {:.2f} %\n"
                    "perplexity {:.4f} (base) {:.4f} (model)\n",
                    result->mean_kl, result->p99_kl, result->max_kl, 100 * result->top1_agreement,
                    result->base.perplexity, result->model.perplexity));
  }
  Json answer = answer_header("eval", (*model)->files(), (*model)->options());
  answer["rows"] = {answer_row("mean_kl", result->mean_kl, "nat"),
                    answer_row("p99_kl", result->p99_kl, "nat"),
                    answer_row("max_kl", result->max_kl, "nat"),
                    answer_row("top1_agreement", 100 * result->top1_agreement, "%")};
  answer["mean_kl"] = result->mean_kl;
  answer["perplexity"] = result->model.perplexity;
  answer["base_perplexity"] = result->base.perplexity;
  return print(answer.dump() + "\n");
}

Status eval_proof(const EvalOptions& options, engine::EngineOptions engine_opts, bool* differs) {
  auto files = open_files(options.common);
  if (!files.ok()) return files.status();
  engine_opts.max_model_len = std::min(512, (*files)->config().max_position_embeddings);
  if (engine_opts.max_model_len < 2 * kProofDecode) {
    return unsupported(fmt::format("--prove needs {} positions, and the model has {}",
                                   2 * kProofDecode, engine_opts.max_model_len));
  }
  if (Status s = engine::open_backend(&engine_opts); !s.ok()) return s;
  auto plan_options = engine_opts;
  plan_options.max_num_seqs = 1;
  auto plan = engine::plan_memory(**files, &plan_options);
  if (!plan.ok()) return plan.status();
  ThreadPool pool(plan_options.threads);
  auto loaded = engine::LoadedModel::load(
      std::move(files).value(),
      {.context_len = engine_opts.max_model_len,
       .weight_bytes = plan->weights,
       .backend = engine_opts.backend,
       .exact_weights = engine_opts.activations == kernels::ActivationPrecision::kF32,
       .quantization = engine_opts.quantization,
       .packed_cache = engine_opts.packed_cache,
       .arrangement = plan->arrangement},
      pool);
  if (!loaded.ok()) return loaded.status();
  std::vector<int32_t> prompt = (*loaded)->tokenizer()->encode(kProofText, {});
  const auto room = static_cast<size_t>(engine_opts.max_model_len - kProofDecode);
  if (prompt.size() > room) prompt.resize(room);
  auto cases = diag::prove(*loaded, engine_opts, prompt, kProofDecode);
  if (!cases.ok()) return cases.status();
  Json answer = answer_header("eval", (*loaded)->files(), plan_options);
  std::string table;
  for (const diag::ProofCase& c : *cases) {
    *differs = *differs || c.differing_rows > 0 || !c.exercised;
    Json row = answer_row(c.name, static_cast<double>(c.differing_rows), "differing rows");
    row["limit"] = 0;
    row["rows"] = c.rows;
    row["exercised"] = c.exercised;
    if (!c.first_difference.empty()) row["first_difference"] = c.first_difference;
    answer["rows"].push_back(row);
    std::string verdict = "equal, bit for bit";
    if (!c.exercised) verdict = "NOT EXERCISED";
    if (c.differing_rows > 0)
      verdict = fmt::format("{} DIFFER, first at {}", c.differing_rows, c.first_difference);
    table += fmt::format("{:<44} {:>4} rows  {}\n", c.name, c.rows, verdict);
  }
  answer["proved"] = !*differs;
  return print(options.common.json ? answer.dump() + "\n" : table);
}

Status dump_logits(const EvalOptions& options, engine::EngineOptions engine_opts) {
  auto text = read_text(options.ids);
  if (!text.ok()) return text.status();
  auto ids = parse_ids(*text);
  if (!ids.ok()) return ids.status().with_context(options.ids);
  if (ids->empty()) return invalid_argument(options.ids + ": no ids");
  auto engine =
      load_engine(options.common, for_all_rows(engine_opts, static_cast<int32_t>(ids->size())));
  if (!engine.ok()) return engine.status();
  const std::filesystem::path out = options.dump_logits;
  std::error_code ignored;
  if (std::filesystem::equivalent(out, options.ids, ignored))
    return invalid_argument("--dump-logits would write over --ids: " + out.string());
  const std::filesystem::path model = (*engine)->files().path();
  if (std::filesystem::equivalent(out, model, ignored) ||
      std::filesystem::equivalent(out.has_parent_path() ? out.parent_path() : ".", model,
                                  ignored)) {
    return invalid_argument("--dump-logits would write over the model or into its folder: " +
                            out.string());
  }
  auto logits = diag::all_logits(**engine, *ids);
  if (!logits.ok()) return logits.status();
  return write_file_atomically(options.dump_logits, {reinterpret_cast<const char*>(logits->data()),
                                                     logits->size() * sizeof(float)});
}

// One thing at a time, and no option that it does not look at.
Status check_combinations(const EvalOptions& options) {
  const bool kl = !options.kl.empty();
  const bool dump = !options.dump_logits.empty();
  const bool windows = kl || !options.perplexity.empty();
  const int tasks = (kl ? 1 : 0) + (dump ? 1 : 0) + (options.prove ? 1 : 0) +
                    (options.perplexity.empty() ? 0 : 1);
  if (tasks == 0) {
    return invalid_argument(
        "nothing to evaluate: give --perplexity FILE, --kl BASE --text FILE, --prove or "
        "--dump-logits OUT --ids FILE");
  }
  if (tasks > 1)
    return invalid_argument("give one of --perplexity, --kl, --prove and --dump-logits");
  if (kl == options.text.empty())
    return invalid_argument(kl ? "--kl needs --text FILE" : "--text goes with --kl");
  if (!kl && !options.kl_activations.empty())
    return invalid_argument("--kl-activations goes with --kl");
  if (dump == options.ids.empty())
    return invalid_argument(dump ? "--dump-logits needs --ids FILE"
                                 : "--ids goes with --dump-logits");
  if (!windows && (options.window != 0 || options.limit != 0))
    return invalid_argument("--window and --limit go with --perplexity and --kl");
  if (options.window < 0 || options.limit < 0)
    return invalid_argument("--window and --limit must not be negative");
  if (options.window == 1)
    return invalid_argument("--window 1 predicts nothing: at least 2 tokens");
  if (options.common.max_model_len != 0)
    return invalid_argument("--max-model-len: an evaluation's context is its --window, or its ids");
  return {};
}

}  // namespace

Status run_eval(const EvalOptions& options, bool* differs) {
  if (Status s = check_combinations(options); !s.ok()) return s;
  auto engine_opts = engine_options(options.common);
  if (!engine_opts.ok()) return engine_opts.status();
  if (!options.dump_logits.empty()) return dump_logits(options, *engine_opts);
  if (options.prove) return eval_proof(options, *engine_opts, differs);
  if (!options.kl.empty()) return eval_divergence(options, *engine_opts);
  return eval_perplexity(options, *engine_opts);
}

}  // namespace pelton::cli
