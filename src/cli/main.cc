// The program: declares every command's options once (command line, environment, config file and
// help come from these declarations), runs the command, turns a status or an escaped exception into
// one line and an exit code.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <sstream>

#include "base/check.h"
#include "cli/bench.h"
#include "cli/bench_serve.h"
#include "cli/common.h"
#include "cli/eval.h"
#include "cli/inspect.h"
#include "cli/plan.h"
#include "cli/run.h"
#include "cli/serve.h"
#include "cli/tokenize.h"
#include "models/shapes.h"

namespace pelton::cli {
namespace {

constexpr const char* kVersion = "0.1.0";

// A command: its parser, what runs it, its exit code beside success.
struct Command {
  CLI::App* app = nullptr;
  std::function<Status()> run;
};

// Options of every command that opens a model.
void add_common(CLI::App* app, CommonOptions* options, const char* model = "MODEL") {
  app->add_option(
         model, options->model,
         "GGUF file or Hugging Face folder; bare names, or the beginning of one, are looked "
         "up in PELTON_MODELS")
      ->required();
  app->add_option("--models-path", options->model_path,
                  "folders to look bare model names up in, colon-separated")
      ->envname("PELTON_MODELS")
      ->capture_default_str();
  app->add_option("-t,--threads", options->threads, "threads; 0 = all that this process may use")
      ->envname("PELTON_THREADS");
  app->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  app->add_option("--cuda-lib-path", options->cuda_lib_path,
                  "with --device cuda: folders to look for cuBLASLt in first, colon-separated; "
                  "none: do without it");
  app->add_option("--isa", options->isa, "force a kernel level: generic, avx2, avx512, amx")
      ->envname("PELTON_ISA");
  app->add_option("--activations", options->activations,
                  "activations of quantized products: int8, or f32 for exactness")
      ->capture_default_str();
  app->add_option("--memory", options->memory,
                  "bound on anonymous memory, e.g. 2GiB; the KV cache takes what is left");
  app->add_option("--kv-cache-dtype", options->kv_cache_dtype, "auto, f32, f16, bf16, fp8, int8")
      ->capture_default_str();
  app->add_option("-c,--ctx-size,--max-model-len", options->max_model_len,
                  "longest context in tokens; 0 = min(model, 4096)");
  app->add_option("--max-num-seqs,--max-batch-size", options->max_num_seqs,
                  "sequences that may run at once")
      ->check(CLI::Range(1, 4096));
  app->add_option("--max-num-batched-tokens,--max-batch-tokens", options->max_num_batched_tokens,
                  "tokens of one step")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--block-size", options->block_size,
                  "tokens of a KV block: 16, 32, 64, 128 or 256")
      ->capture_default_str();
  app->add_option("--num-kv-blocks,--num-gpu-blocks-override", options->num_kv_blocks,
                  "KV blocks in all; 0 = as many as the sequences' contexts, or memory, ask for")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()));
  app->add_flag("--no-enable-prefix-caching", options->no_prefix_caching,
                "never reuse the KV blocks of an equal prefix");
  app->add_option("--quantization", options->quantization,
                  "weights at load, on a GPU: none, fp8, int8 or int4 (groups of 128)")
      ->capture_default_str();
  app->add_option(
      "--packed-cache", options->packed_cache,
      "on a GPU: file, or folder for such, that keeps the weights as they are there for "
      "the next start");
  app->add_flag("--invariant", options->invariant,
                "same bits whatever the batch; always so on a CPU");
  app->add_flag("--json", options->json, "one JSON object on standard output");
}

// Of commands that a known shape will do for.
void add_shape(CLI::App* app, CommonOptions* options) {
  app->get_option("MODEL")->required(false);
  app->add_option("--shape", options->shape,
                  "instead of MODEL, random weights of a known shape: " + models::shape_names());
  app->add_option("--weights", options->weights,
                  "with --shape: bf16, or on a GPU fp8, int8 or int4 (groups of 128)")
      ->capture_default_str();
  app->add_option("--layers", options->layers, "with --shape: its depth; 0 = the shape's own")
      ->check(CLI::Range(0, 1024));
}

// A sampling option, remembered when the user gave it: what stays unset takes the model's own
// recommendation.
template <typename T>
void add_sampling(CLI::App* app, RunOptions* options, const std::string& names, T* value,
                  const std::string& help) {
  const std::string key = names.substr(names.rfind("--") + 2);
  app->add_option(names, *value, help)->each([options, key](const std::string&) {
    options->set_by_user.push_back(key);
  });
}

Command add_run(CLI::App& program, std::shared_ptr<bool> unanswered) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* app = program.add_subcommand("run", "chat in the terminal, or complete one prompt");
  app->footer(
      "Examples:\n"
      "  pelton run model.gguf                             chat; /help inside lists its commands\n"
      "  pelton run model.gguf -p 'Why is the sky blue?'   one answer\n"
      "  pelton run model.gguf --raw -p 'def fib(n):' -n 64 --greedy\n"
      "  pelton run model.gguf -f question.txt --json      one JSON object\n"
      "  git diff | pelton run model.gguf -p 'Review:' -f -");
  add_common(app, &options->common);
  SamplingParams& s = options->sampling;
  CLI::Option* prompt =
      app->add_option("-p,--prompt", options->prompt, "the prompt; without -p or -f: chat");
  app->add_option("-f,--file", options->file,
                  "prompt from this file, after -p's and without its last line end; - is standard "
                  "input");
  app->add_option("--system", options->system, "system prompt");
  app->add_flag("--raw", options->raw, "complete the text as it stands: no chat template");
  app->add_option("-n,--n-predict,--max-tokens", options->max_tokens,
                  "tokens to generate at most; -1 = to the context's end")
      ->check(CLI::Range(-1, std::numeric_limits<int32_t>::max()));
  app->add_flag("--greedy", options->greedy,
                "always the most likely token; the same as --temperature 0");
  app->add_option("--beams,--num-beams", options->num_beams, "beam search of this width")
      ->check(CLI::Range(1, 64));
  app->add_option("--length-penalty", s.length_penalty,
                  "beams: score = log-probability / length^penalty");
  app->add_option("--early-stopping", s.early_stopping,
                  "beams: false, true or never, as in transformers")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, EarlyStopping>{{"false", EarlyStopping::kFalse},
                                               {"true", EarlyStopping::kTrue},
                                               {"never", EarlyStopping::kNever}}));
  app->add_option("--n", s.n, "answers to the prompt");
  add_sampling(app, options.get(), "--temp,--temperature", &s.temperature, "0 = greedy");
  add_sampling(app, options.get(), "--top-k", &s.top_k, "keep the k most likely tokens; 0 = all");
  add_sampling(app, options.get(), "--top-p", &s.top_p,
               "keep the most likely tokens of this total probability");
  add_sampling(app, options.get(), "--min-p", &s.min_p,
               "drop tokens below this share of the most likely one's probability");
  add_sampling(app, options.get(), "--typical-p", &s.typical_p, "locally typical sampling");
  add_sampling(app, options.get(), "--repeat-penalty,--repetition-penalty", &s.repetition_penalty,
               "over prompt and answer");
  add_sampling(app, options.get(), "--presence-penalty", &s.presence_penalty, "over the answer");
  add_sampling(app, options.get(), "--frequency-penalty", &s.frequency_penalty, "over the answer");
  add_sampling(app, options.get(), "--dry-multiplier", &s.dry_multiplier,
               "penalty on repeating a sequence; 0 = off");
  app->add_option("--dry-base", s.dry_base, "growth of that penalty");
  app->add_option("--dry-allowed-length", s.dry_allowed_length,
                  "repetitions up to this length are free");
  app->add_option("--min-tokens", s.min_tokens, "no end before this many tokens");
  app->add_option("--stop", s.stop, "end the answer before this text; may be given more than once");
  app->add_option("--logprobs", s.logprobs,
                  "with --json: log-probabilities of this many tokens beside each chosen one");
  app->add_flag("--ignore-eos", s.ignore_eos, "go on after the end token");
  app->add_option_function<uint64_t>(
      "-s,--seed", [options](const uint64_t& seed) { options->sampling.seed = seed; },
      "same seed, same text; random when not given");
  return {app, [options, prompt, unanswered] {
            options->has_prompt = prompt->count() > 0;
            return run_run(*options, unanswered.get());
          }};
}

Command add_tokenize(CLI::App& program) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* app =
      program.add_subcommand("tokenize", "ids and pieces of a text or a chat, or the text of ids");
  app->footer(
      "Examples:\n"
      "  pelton tokenize model.gguf 'Hello world'\n"
      "  pelton tokenize model.gguf --decode '19556 905'\n"
      "  pelton tokenize model.gguf --chat conversation.json --json");
  add_common(app, &options->common);
  CLI::Option* text = app->add_option("TEXT", options->text, "the text, or ids with --decode");
  app->add_option("-f,--file", options->file, "text or ids from this file; - is standard input");
  app->add_flag("--decode", options->decode, "ids to text");
  app->add_option(
      "--chat", options->chat,
      "FILE.json with {\"messages\", \"tools\", \"add_generation_prompt\"} or a list of messages");
  app->add_flag("--no-special", options->no_special, "add nothing around the text");
  app->add_flag("--parse-special", options->parse_special,
                "control tokens spelled in the text become control tokens");
  return {app, [options, text] {
            options->has_text = text->count() > 0;
            return run_tokenize(*options);
          }};
}

Command add_eval(CLI::App& program, std::shared_ptr<bool> differs) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* app = program.add_subcommand(
      "eval", "perplexity, divergence from another model, proof of invariance");
  app->footer(
      "Examples:\n"
      "  pelton eval model.gguf --perplexity text.txt\n"
      "  pelton eval model.gguf --kl model.gguf --text text.txt    int8 activations against exact "
      "ones\n"
      "  pelton eval model.gguf --prove                            exit code 1 on any differing "
      "bit");
  add_common(app, &options->common);
  app->add_option("--perplexity", options->perplexity,
                  "text file; documents may be separated by lines holding a form feed");
  app->add_option("--kl", options->kl, "base model: mean KL(base || model) over --text");
  app->add_option("--kl-activations", options->kl_activations,
                  "activations of the base: f32 (default) or int8");
  app->add_option("--text", options->text, "text file of --kl");
  app->add_flag("--prove", options->prove,
                "logits alone = batched = chunked = preempted = prefix-cached = any thread count");
  app->add_option("--window", options->window,
                  "tokens of a window; 0 = 1024 for perplexity, 256 for divergence");
  app->add_option("--limit", options->limit, "windows at most; 0 = all");
  app->add_option("--dump-logits", options->dump_logits,
                  "write the float32 logits [ids, vocab] of --ids to this file");
  app->add_option("--ids", options->ids, "file with token ids for --dump-logits");
  return {app, [options, differs] { return run_eval(*options, differs.get()); }};
}

Command add_inspect(CLI::App& program) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* app = program.add_subcommand(
      "inspect", "what is in a model file: shapes, formats, sizes, tokenizer, template");
  app->footer(
      "Examples:\n"
      "  pelton inspect model.gguf\n"
      "  pelton inspect folder/ --json");
  add_common(app, options.get());
  return {app, [options]() -> Status {
            std::string answer;
            const InspectOptions inspect{options->model, options->model_path, options->json};
            if (Status s = run_inspect(inspect, &answer); !s.ok()) return s;
            return print(answer);
          }};
}

Command add_bench(CLI::App& program) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* app = program.add_subcommand(
      "bench", "prompt and decode speed, beside what memory and arithmetic of this machine allow");
  app->footer(
      "Examples:\n"
      "  pelton bench model.gguf\n"
      "  pelton bench model.gguf -p 512 -n 128 --rows pp,tg --repeat 10\n"
      "  pelton bench model.gguf --depth 4096 --batch 4,16\n"
      "  pelton bench model.gguf --rows offline --prompts questions.txt --json\n"
      "  pelton bench model.gguf --rows tg128,tg32_b64@d1024,batching_64/256\n"
      "  pelton bench --shape llama-3.1-8b --layers 2 --device cuda");
  add_common(app, &options->common);
  add_shape(app, &options->common);
  app->add_option("-p,--prompt-tokens", options->prompt_tokens, "tokens of the prompt row")
      ->capture_default_str();
  app->add_option("-n,--generated-tokens", options->generated_tokens,
                  "tokens that each sequence of a decode row generates")
      ->capture_default_str();
  app->add_option("-d,--depth", options->depth, "tokens already in the context of every row")
      ->capture_default_str();
  app->add_option("-b,--batch", options->batches, "sequences of the batched decode rows")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("-r,--repeat", options->repeat, "repetitions of each row; the median is shown")
      ->capture_default_str();
  app->add_option("--rows", options->rows,
                  "which rows: pp, tg, batch, offline, or their names: tg128_b8@d1024, pp8x2048, "
                  "offline_128/128, batching_256/256_r1000 (continuous against static batching)")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--save", options->save, "not supported: a shape's weights are not written");
  app->add_option("--prefill", options->prefill,
                  "rows of prompts that run together, e.g. 8x2048,2x8192")
      ->delimiter(',');
  app->add_option("--offline", options->lengths,
                  "rows of offline throughput: input/output tokens, e.g. 128/128,1000/1000")
      ->delimiter(',');
  app->add_flag("--enforce-eager", options->enforce_eager, "on a GPU: no captured steps");
  app->add_flag("--json-lines", options->json_lines,
                "JSON: first what is measured where, then a line for each row as it is there");
  app->add_option("--prompts", options->prompts,
                  "text file with a prompt a line, run together: the offline row");
  return {app, [options] { return run_bench(*options); }};
}

// What requests of bench-serve ask for.
void add_workload(CLI::App* app, BenchServeOptions* options) {
  bench_serve::WorkloadOptions& w = options->workload;
  app->add_option("--dataset", w.dataset,
                  "random: fixed lengths; exponential: answers of exponential length; sharegpt: "
                  "lengths as in chats; or a file: JSON lines of prompt and output_len, or "
                  "ShareGPT's JSON")
      ->capture_default_str();
  app->add_option("--num-prompts", w.count, "requests")->capture_default_str();
  app->add_option("--input-len,--random-input-len", w.input_len,
                  "tokens of a prompt, its mean for sharegpt; words when the prompt is text")
      ->capture_default_str();
  app->add_option("--output-len,--random-output-len", w.output_len,
                  "tokens of an answer, or their mean")
      ->capture_default_str();
  app->add_option("--output-cap", w.output_cap, "no longer answers are drawn")
      ->capture_default_str();
  app->add_option("--prefix-len", w.prefix_len, "shared tokens before each prompt");
  app->add_option(
         "--prefix-share", w.prefix_share,
         "share of the requests that have a shared prefix, the others have one of their own")
      ->capture_default_str();
  app->add_option("--prefix-count", w.prefix_count, "different shared prefixes")
      ->capture_default_str();
  app->add_option("--token-ids", options->token_ids,
                  "LOW-HIGH: prompts as random token ids, of exact length");
  app->add_option("--seed", w.seed, "same seed, same load")->capture_default_str();
}

Command add_bench_serve(CLI::App& program) {
  auto options = std::make_shared<BenchServeOptions>();
  CLI::App* app = program.add_subcommand("bench-serve",
                                         "load on an OpenAI server: latency, throughput, goodput");
  app->footer(
      "Examples:\n"
      "  pelton bench-serve --url http://127.0.0.1:8000 --max-concurrency 16\n"
      "  pelton bench-serve --url http://127.0.0.1:8000 --request-rate 4 --dataset sharegpt --csv "
      "out.csv\n"
      "  pelton bench-serve --url http://127.0.0.1:8000 --endpoint chat --goodput ttft:500 "
      "tpot:50");
  app->add_option("--url,--base-url", options->url, "the server, e.g. http://127.0.0.1:8000")
      ->required();
  app->add_option("--endpoint", options->endpoint, "completions or chat")->capture_default_str();
  app->add_option("--model", options->model, "the first that the server lists otherwise");
  app->add_option("--api-key-file", options->api_key_file, "the key is its first word");
  app->add_option("--cacert", options->ca_file,
                  "of https: certificates to trust (PEM); the system's otherwise");
  app->add_flag("--insecure", options->insecure, "of https: any certificate will do");
  add_workload(app, options.get());
  app->add_option("--request-rate", options->request_rate,
                  "open loop: requests a second, Poisson; 0 = all at once");
  app->add_option("--burstiness", options->burstiness,
                  "shape of the gaps between them: 1 = Poisson, smaller = bursts")
      ->capture_default_str();
  app->add_option("--max-concurrency", options->max_concurrency,
                  "closed loop: requests under way at most; 0 = no bound");
  app->add_option("--temperature", options->temperature, "0 = greedy")->capture_default_str();
  app->add_flag("--ignore-eos", options->ignore_eos,
                "answers of full length, where the server knows the field");
  app->add_option("--extra-body", options->extra_body,
                  "JSON object whose members go into every request");
  app->add_option("--goodput", options->goodput,
                  "what a good answer keeps, in ms: ttft:MS, tpot:MS, e2el:MS");
  app->add_option("--timeout", options->timeout, "seconds of one request")->capture_default_str();
  app->add_option("--num-warmups", options->warmups, "requests before the measured ones");
  app->add_option("--csv", options->csv, "a line a request into this file");
  app->add_flag("--json", options->json, "one JSON object on standard output");
  return {app, [options] { return run_bench_serve(*options); }};
}

Command add_plan(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* app = program.add_subcommand(
      "plan", "does it fit, for how many users and how long; reads headers only");
  app->footer(
      "Examples:\n"
      "  pelton plan model.gguf\n"
      "  pelton plan model.gguf --memory 4GiB --max-num-seqs 64 --kv-cache-dtype int8\n"
      "  pelton plan --shape llama-3.1-8b --device cuda             without a GPU: for an H200");
  add_common(app, &options->common);
  add_shape(app, &options->common);
  return {app, [options] { return run_plan(*options); }};
}

// What vLLM's start lines hold and needs nothing here.
void add_vllm_options(CLI::App* app, ServeOptions* options) {
  app->add_option("--tensor-parallel-size", options->tensor_parallel_size, "1");
  app->add_option("--dtype", options->dtype, "as the weights are; read and left alone");
  app->add_option("--gpu-memory-utilization", options->gpu_memory_utilization,
                  "share of a GPU's free memory that may be taken; for a CPU see --memory")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app->add_flag("--enforce-eager", options->enforce_eager, "on a GPU: no captured steps");
  app->add_flag("--disable-log-requests", options->disable_log_requests,
                "always so without --request-log");
  // Read, told in one line, and left alone: they choose among things that are one here.
  for (const char* name :
       {"--enable-auto-tool-choice", "--enable-reasoning", "--enable-chunked-prefill",
        "--enable-prefix-caching", "--trust-remote-code", "--disable-log-stats",
        "--no-enable-log-requests", "--disable-uvicorn-access-log", "--async-scheduling",
        "--disable-frontend-multiprocessing", "--disable-custom-all-reduce",
        "--use-v2-block-manager", "--disable-fastapi-docs"}) {
    app->add_flag_callback(name, [options, name] { options->left_alone.emplace_back(name); })
        ->group("");
  }
  for (const char* name :
       {"--swap-space", "--tokenizer-mode", "--load-format", "--max-seq-len-to-capture",
        "--max-log-len", "--uvicorn-log-level", "--distributed-executor-backend", "--revision",
        "--download-dir", "--generation-config", "--compilation-config", "--scheduling-policy",
        "--num-scheduler-steps", "--response-role", "--task", "--runner"}) {
    const auto take = [options, name](const std::string&) {
      options->left_alone.emplace_back(name);
    };
    app->add_option_function<std::string>(name, take)->group("");
  }
}

void add_model_options(CLI::App* app, ServeOptions* options) {
  app->add_option("--tool-call-parser", options->tool_call_parser,
                  "how the model writes calls of tools: auto, none, hermes, llama3_json, mistral, "
                  "deepseek_v3, deepseek_v31, pythonic")
      ->capture_default_str();
  app->add_option("--reasoning-parser", options->reasoning_parser,
                  "how it writes reasoning: auto, none, qwen3, deepseek_r1, mistral, ...")
      ->capture_default_str();
  app->add_option("--pooling", options->pooling, "of embeddings: last or mean")
      ->capture_default_str();
}

Command add_serve(CLI::App& program) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* app = program.add_subcommand("serve", "the OpenAI API over HTTP");
  app->footer(
      "Examples:\n"
      "  pelton serve model.gguf\n"
      "  pelton serve model.gguf --port 8080 --max-num-seqs 32 --served-model-name small\n"
      "  pelton serve model.gguf --api-key-file keys.txt\n"
      "  pelton serve --config pelton.toml\n"
      "  pelton serve model.gguf --self-test");
  // An option too, so that a configuration file can name the model.
  add_common(app, &options->common, "--model,MODEL");
  add_shape(app, &options->common);
  app->fallthrough();  // --config may follow the command
  app->add_option("--host", options->host, "address to listen on")->capture_default_str();
  app->add_option("--port", options->port, "0 = any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--served-model-name", options->served_model_name,
                  "names that requests may ask for; the model's own otherwise");
  app->add_option("--api-key-file", options->api_key_file,
                  "keys that may call: one a line, after it a weight if wanted");
  app->add_option("--ssl-certfile", options->ssl_certfile,
                  "PEM file of the certificate and its chain: HTTPS");
  app->add_option("--ssl-keyfile", options->ssl_keyfile,
                  "PEM file of its unencrypted key; in --ssl-certfile otherwise");
  app->add_option("--api-key", options->api_keys,
                  "such a key; others on this machine can read it: better a file");
  app->add_option("--allowed-hosts", options->allowed_hosts,
                  "names in Host headers beside loopback ones; * = any");
  app->add_option("--allowed-origins", options->allowed_origins,
                  "web pages that may call, e.g. https://chat.example; * = any");
  app->add_option("--batching", options->batching, "continuous or static")->capture_default_str();
  app->add_option("--max-queue", options->max_queue, "requests that may wait; beyond: 429")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app->add_option("--queue-timeout", options->queue_timeout, "seconds of waiting; beyond: 503")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app->add_option("--drain-timeout", options->drain_timeout,
                  "seconds that requests have to end after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app->add_option("--max-connections", options->max_connections, "open connections")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  const auto seconds = [app](const char* name, double* value, const char* help) {
    app->add_option(name, *value, help)->check(CLI::Range(0.001, 86400.0))->capture_default_str();
  };
  seconds("--header-timeout", &options->header_timeout,
          "seconds for a request's head, or a TLS handshake");
  seconds("--body-timeout", &options->body_timeout, "seconds for its body");
  seconds("--idle-timeout", &options->idle_timeout,
          "seconds that a connection may wait for a request");
  seconds("--step-watchdog", &options->step_watchdog,
          "seconds after which /health counts a step as hanging");
  app->add_option("--http-workers", options->http_workers, "threads for JSON and tokenizing")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_flag("--self-test", options->self_test,
                "start, ask itself one of everything over loopback, say what passed, and end");
  app->add_flag("--disable-page", options->disable_page, "no web page at /");
  app->add_option("--request-log", options->request_log,
                  "a line of JSON a request into this file, with where its time went and without "
                  "what it said; - = standard error");
  app->add_option("--metrics-names", options->metrics_names,
                  "pelton, or vllm: vLLM's names of metrics beside our own")
      ->capture_default_str();
  add_model_options(app, options.get());
  add_vllm_options(app, options.get());
  return {app, [options] { return run_serve(*options, kVersion); }};
}

int fail(const Status& status) {
  print_error(status.to_string());
  if (status.code() == StatusCode::kCancelled) return 130;  // as the shell says of Ctrl-C
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

// Reads a bounded file, and refuses lines that the library would pass over.
class StrictConfig : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    constexpr size_t kMaxBytes = 1 << 20;
    std::string text(kMaxBytes + 1, '\0');
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(input.gcount()));
    status_ = text.size() > kMaxBytes ? invalid_argument("--config: larger than 1 MiB")
                                      : check_lines(text);
    if (!status_.ok()) return {};
    std::istringstream whole(text);
    return CLI::ConfigTOML::from_config(whole);
  }
  // What was wrong with the file that was read, if one was.
  const Status& status() const { return status_; }

 private:
  static Status check_lines(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string::npos || line[first] == '#' || line[first] == ';') continue;
      const size_t last = line.find_last_not_of(" \t\r");
      const bool section = line[first] == '[' && line[last] == ']';
      const size_t equals = line.find('=');
      if (!section && (line[first] == '[' || equals == std::string::npos || equals == first)) {
        return invalid_argument(
            fmt::format("--config: line {} is neither \"key = value\" nor \"[command]\"", number));
      }
    }
    return {};
  }

  mutable Status status_;
};

// CLI11 takes a whole number beyond 64 bits for the largest one, and a negative one for a large one
// where none can be negative.
void refuse_beyond_64_bits(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();  // followed by the names of its checks
    const bool is_signed = type.starts_with("INT");
    if (!is_signed && !type.starts_with("UINT")) continue;
    option->check([is_signed](const std::string& text) {
      if (!is_signed && text.find('-') != std::string::npos) return text + " is negative";
      errno = 0;
      if (is_signed) {
        std::strtoll(text.c_str(), nullptr, 0);
      } else {
        std::strtoull(text.c_str(), nullptr, 0);
      }
      return errno == ERANGE ? text + " is beyond 64 bits" : std::string();
    });
  }
}

int run_program(int argc, char** argv) {
  CLI::App program("Pelton: runs large language models on CPUs.", "pelton");
  program.set_version_flag("--version", kVersion);
  program.set_config("--config", "", "options from a TOML or INI file");
  const auto config = std::make_shared<StrictConfig>();
  program.config_formatter(config);
  program.allow_config_extras(CLI::config_extras_mode::error);
  program.require_subcommand(1);
  // Of commands that go on to their end and end with 1 all the same.
  const auto failed = std::make_shared<bool>(false);
  const std::vector<Command> commands = {add_run(program, failed), add_tokenize(program),
                                         add_inspect(program),     add_eval(program, failed),
                                         add_bench(program),       add_bench_serve(program),
                                         add_plan(program),        add_serve(program)};
  for (const Command& command : commands) refuse_beyond_64_bits(command.app);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (!config->status().ok()) return fail(config->status());
    if (error.get_exit_code() == 0) {  // --help, --version
      const int code = program.exit(error);
      return std::cout.flush() ? code : fail(io_error("standard output: cannot write"));
    }
    const std::vector<std::string> unknown = program.remaining();
    if (program.get_subcommands().empty() && !unknown.empty() && !unknown[0].starts_with('-'))
      return fail(invalid_argument("'" + unknown[0] + "' is no command; --help lists them"));
    return fail(invalid_argument(std::string(error.what()) + "; --help lists the options"));
  }
  if (!config->status().ok()) return fail(config->status());
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (const Status status = command.run(); !status.ok()) return fail(status);
  }
  return *failed ? 1 : 0;
}

}  // namespace
}  // namespace pelton::cli

int main(int argc, char** argv) {
  try {
    return pelton::cli::run_program(argc, argv);
  } catch (const pelton::InternalError& error) {
    return pelton::cli::fail(pelton::internal_error(error.what()));
  } catch (const std::bad_alloc&) {
    return pelton::cli::fail(pelton::resource_exhausted("out of memory"));
  }
}
