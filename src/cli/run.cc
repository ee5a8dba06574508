#include "cli/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>

#include "base/process_memory.h"
#include "engine/chat.h"

namespace pelton::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> g_interrupted{false};

// While it lives, Ctrl-C ends the answer instead of the process; a second one during the same
// answer ends the process.
class InterruptGuard {
 public:
  InterruptGuard() {
    g_interrupted = false;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      if (g_interrupted.exchange(true)) _exit(130);
    };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &previous_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction previous_ = {};
};

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  Status error;
  Usage usage;
  std::vector<TokenLogprobs> logprobs;
};

struct Timings {
  double load_s = 0;
  double first_token_s = 0;   // from submit; all of it when nothing is generated
  size_t peak_anonymous = 0;  // bytes, sampled after every step
  double decode_s = 0;        // from the first token to the last
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens computed, or found in the cache, since the engine was made.
int64_t rows_run(const engine::Engine& engine) {
  const sched::SchedulerStats stats = engine.metrics().scheduler;
  return stats.scheduled_tokens + stats.prefix_hit_tokens;
}

// Runs one request to its end, showing text as it comes.
Result<std::vector<Answer>> generate(engine::Engine& engine, Request request, bool show,
                                     Timings* timings) {
  std::vector<Answer> answers(static_cast<size_t>(request.sampling.n));
  const bool stream = show && answers.size() == 1;
  // Beams give their tokens at the end: the first is chosen when the prompt's last row has run.
  const bool beams = request.sampling.num_beams > 1;
  const auto prompt_rows = static_cast<int64_t>(request.prompt_ids.size()) + rows_run(engine);
  Status output;
  const InterruptGuard guard;
  const Clock::time_point start = Clock::now();
  Clock::time_point first = start;
  bool any = false;
  const auto note_first = [&] {
    if (!any) first = Clock::now();
    any = true;
  };
  auto id = engine.submit(std::move(request), [&](const TokenEvent& event) {
    Answer& answer = answers[static_cast<size_t>(event.index)];
    if (!event.tokens.empty()) note_first();
    answer.ids.insert(answer.ids.end(), event.tokens.begin(), event.tokens.end());
    answer.text += event.text;
    answer.logprobs.insert(answer.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    answer.usage = event.usage;
    if (event.finish != FinishReason::kNone) {
      answer.finish = event.finish;
      answer.error = event.error;
    }
    if (stream && !event.text.empty() && output.ok()) output = print(event.text);
  });
  if (!id.ok()) return id.status();
  while (engine.step()) {
    timings->peak_anonymous = std::max(timings->peak_anonymous, anonymous_resident_bytes());
    if (beams && rows_run(engine) >= prompt_rows) note_first();
    if (g_interrupted || !output.ok()) engine.cancel(*id);
  }
  if (!any) first = Clock::now();
  timings->first_token_s = std::chrono::duration<double>(first - start).count();
  timings->decode_s = any ? seconds_since(first) : 0.0;
  if (!output.ok()) return output;
  for (const Answer& answer : answers) {
    if (answer.finish == FinishReason::kError) return answer.error;
  }
  return answers;
}

bool given(const RunOptions& options, const char* name) {
  return std::ranges::find(options.set_by_user, name) != options.set_by_user.end();
}

// Options that would do nothing beside the others. The engine checks the values themselves.
Status check_combinations(const RunOptions& options) {
  const SamplingParams& s = options.sampling;
  const SamplingParams neutral;
  // The engine checks n too, but after space for n answers is taken.
  SamplingParams answers;
  answers.n = s.n;
  const int32_t any = std::numeric_limits<int32_t>::max();
  if (Status n = validate(answers, any, any); !n.ok()) return n.with_context("--n");
  if (options.greedy && given(options, "temperature") && s.temperature != 0.0f)
    return invalid_argument(fmt::format("--greedy contradicts --temperature {}", s.temperature));
  if (options.raw && !options.system.empty())
    return invalid_argument("--system goes into a chat template, and --raw leaves that out");
  if (s.logprobs != neutral.logprobs && !options.common.json)
    return invalid_argument("--logprobs is shown by --json only");
  const bool of_beams =
      s.length_penalty != neutral.length_penalty || s.early_stopping != neutral.early_stopping;
  if (of_beams && options.num_beams == 1)
    return invalid_argument("--length-penalty and --early-stopping go with --beams");
  return {};
}

SamplingParams effective_sampling(const RunOptions& options, const engine::ModelFiles& files) {
  // What the model's makers recommend, else the habits of local chat programs.
  SamplingParams params = options.sampling;
  const SamplingParams& model = files.default_sampling();
  const SamplingParams neutral;
  const bool recommended = model.temperature != neutral.temperature ||
                           model.top_p != neutral.top_p || model.top_k != neutral.top_k;
  if (!given(options, "temperature")) params.temperature = recommended ? model.temperature : 0.8f;
  if (!given(options, "top-k")) params.top_k = recommended ? model.top_k : 40;
  if (!given(options, "top-p")) params.top_p = recommended ? model.top_p : 0.95f;
  if (!given(options, "min-p")) params.min_p = recommended ? model.min_p : 0.05f;
  if (!given(options, "repetition-penalty")) params.repetition_penalty = model.repetition_penalty;
  if (options.greedy || options.num_beams > 1) {
    const bool beams = options.num_beams > 1;
    // What the user gave beams stays, for the engine to refuse what has no meaning there.
    if (!beams) params.temperature = 0.0f;
    if (beams && !given(options, "temperature")) params.temperature = 1.0f;
    if (!beams || !given(options, "top-k")) params.top_k = 0;
    if (!beams || !given(options, "top-p")) params.top_p = 1.0f;
    if (!beams || !given(options, "min-p")) params.min_p = 0.0f;
    if (beams && !given(options, "repetition-penalty")) params.repetition_penalty = 1.0f;
  }
  params.num_beams = options.num_beams;
  if (options.max_tokens >= 0) params.max_tokens = options.max_tokens;
  return params;
}

Result<std::vector<int32_t>> prompt_ids(const RunOptions& options, const engine::Engine& engine,
                                        const std::string& prompt) {
  if (options.raw || engine.files().chat_template().empty()) {
    if (!options.system.empty())
      return unsupported("--system needs a chat template, and the model has none");
    return engine.tokenizer()->encode(prompt, {.add_special_tokens = true, .parse_special = true});
  }
  auto formatter = engine::ChatFormatter::create(engine.files(), engine.tokenizer());
  if (!formatter.ok()) return formatter.status();
  engine::ChatFormatter::Conversation conversation;
  if (!options.system.empty())
    conversation.messages.push_back({{"role", "system"}, {"content", options.system}});
  conversation.messages.push_back({{"role", "user"}, {"content", prompt}});
  return formatter->prompt_ids(conversation);
}

Status print_json(const std::vector<int32_t>& prompt, const std::vector<Answer>& answers,
                  const Timings& timings, uint64_t seed, size_t planned) {
  const auto one = [](const Answer& answer) {
    Json value = {{"ids", answer.ids},
                  {"text", answer.text},
                  {"finish_reason", finish_reason_name(answer.finish)}};
    if (!answer.logprobs.empty()) {
      value["logprobs"] = Json::array();
      for (const TokenLogprobs& token : answer.logprobs) {
        Json top = Json::array();
        for (const TokenLogprob& t : token.top)
          top.push_back({{"id", t.token}, {"logprob", t.logprob}});
        value["logprobs"].push_back(
            {{"id", token.chosen.token}, {"logprob", token.chosen.logprob}, {"top", top}});
      }
    }
    return value;
  };
  Json object = {{"prompt_ids", prompt}};
  object.update(one(answers.front()));
  int64_t completion = 0;
  for (const Answer& answer : answers) completion += answer.usage.completion_tokens;
  object["usage"] = {{"prompt_tokens", answers.front().usage.prompt_tokens},
                     {"completion_tokens", completion},
                     {"total_tokens", answers.front().usage.prompt_tokens + completion},
                     {"cached_tokens", answers.front().usage.cached_tokens}};
  object["timings"] = {{"load_s", timings.load_s},
                       {"first_token_s", timings.first_token_s},
                       {"decode_s", timings.decode_s}};
  object["memory"] = {{"planned_anonymous_bytes", planned},
                      {"peak_anonymous_bytes", timings.peak_anonymous}};
  object["seed"] = seed;
  if (answers.size() > 1) {
    object["choices"] = Json::array();
    for (const Answer& answer : answers) object["choices"].push_back(one(answer));
  }
  return print(object.dump() + "\n");
}

Status complete(const RunOptions& options, engine::Engine& engine, const std::string& prompt,
                double load_s) {
  auto ids = prompt_ids(options, engine, prompt);
  if (!ids.ok()) return ids.status();
  if (ids->empty()) return invalid_argument("the prompt is empty");
  Request request{.prompt_ids = *ids, .sampling = effective_sampling(options, engine.files())};
  if (!request.sampling.seed)
    request.sampling.seed = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  const uint64_t seed = *request.sampling.seed;
  Timings timings{.load_s = load_s};
  auto answers = generate(engine, std::move(request), !options.common.json, &timings);
  if (!answers.ok()) return answers.status();
  const Status end =
      g_interrupted ? Status(StatusCode::kCancelled, "the answer is not whole") : Status();
  if (options.common.json) {
    Status s = print_json(*ids, *answers, timings, seed, engine.plan().anonymous());
    return s.ok() ? end : s;
  }
  if (answers->size() > 1) {
    for (size_t i = 0; i < answers->size(); ++i) {
      if (Status s = print(fmt::format("--- {} ---\n{}\n", i + 1, (*answers)[i].text)); !s.ok())
        return s;
    }
    return end;
  }
  Status s = print("\n");
  return s.ok() ? end : s;
}

constexpr const char* kChatHelp =
    "  /help          this text\n"
    "  /clear         forget the conversation\n"
    "  /system TEXT   forget it and set a system prompt\n"
    "  /again         answer the last question once more\n"
    "  /stats         speed of the last answer\n"
    "  /exit          leave (also Ctrl-D)\n"
    "  Ctrl-C stops an answer; a line that ends in \\ goes on in the next.\n";

// The conversation of an interactive session.
class Chat {
 public:
  Chat(const RunOptions& options, engine::Engine& engine, engine::ChatFormatter formatter)
      : options_(options),
        engine_(engine),
        formatter_(std::move(formatter)),
        system_(options.system) {
    clear();
  }

  Status loop() {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal) std::fputs("Type a message; /help lists the commands.\n", stderr);
    std::string line;
    while (read_line(terminal, &line)) {
      if (line.empty()) continue;
      if (line[0] == '/') {
        if (!command(line)) break;
        continue;
      }
      conversation_.messages.push_back({{"role", "user"}, {"content", line}});
      if (Status s = answer(); !s.ok()) {
        print_error(s.to_string());
        conversation_.messages.pop_back();
        // At a terminal somebody sees it; whoever pipes messages in looks at the exit code.
        unanswered_ = unanswered_ || !terminal;
        if (!engine_.healthy()) return s;
      }
    }
    return {};
  }
  bool unanswered() const { return unanswered_; }

 private:
  bool read_line(bool terminal, std::string* line) {
    line->clear();
    if (terminal) std::fputs("> ", stderr);
    std::string part;
    while (std::getline(std::cin, part)) {
      if (!part.empty() && part.back() == '\\') {
        part.back() = '\n';
        *line += part;
        continue;
      }
      *line += part;
      return true;
    }
    return false;
  }

  void clear() {
    conversation_.messages = Json::array();
    if (!system_.empty())
      conversation_.messages.push_back({{"role", "system"}, {"content", system_}});
  }

  // False to leave.
  bool command(const std::string& line) {
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/clear") {
      clear();
    } else if (line.rfind("/system", 0) == 0) {
      system_ = line.size() > 8 ? line.substr(8) : "";
      clear();
    } else if (line == "/stats") {
      std::fprintf(stderr, "%s\n", stats_.empty() ? "no answer yet" : stats_.c_str());
    } else if (line == "/again" && !conversation_.messages.empty() &&
               conversation_.messages.back()["role"] == Json("assistant")) {
      const Json before = conversation_.messages.back();
      conversation_.messages.pop_back();
      if (Status s = answer(); !s.ok()) {
        print_error(s.to_string());
        conversation_.messages.push_back(before);
      }
    } else {
      std::fputs(kChatHelp, stderr);
    }
    return true;
  }

  Status answer() {
    auto ids = formatter_.prompt_ids(conversation_);
    if (!ids.ok()) return ids.status();
    Request request{.prompt_ids = std::move(ids).value(),
                    .sampling = effective_sampling(options_, engine_.files())};
    Timings timings;
    auto answers = generate(engine_, std::move(request), true, &timings);
    if (!answers.ok()) return answers.status();
    const Answer& first = answers->front();
    conversation_.messages.push_back({{"role", "assistant"}, {"content", first.text}});
    const auto decoded = static_cast<double>(first.usage.completion_tokens - 1);
    stats_ = fmt::format(
        "{} prompt tokens ({} cached), first token after {:.2f} s; {} tokens at {:.1f} tok/s",
        first.usage.prompt_tokens, first.usage.cached_tokens, timings.first_token_s,
        first.usage.completion_tokens, timings.decode_s > 0 ? decoded / timings.decode_s : 0.0);
    return print(first.finish == FinishReason::kCancelled ? " [stopped]\n" : "\n");
  }

  const RunOptions& options_;
  engine::Engine& engine_;
  engine::ChatFormatter formatter_;
  engine::ChatFormatter::Conversation conversation_;
  std::string system_;
  std::string stats_;
  bool unanswered_ = false;
};

}  // namespace

Status run_run(const RunOptions& options, bool* unanswered) {
  if (Status s = check_combinations(options); !s.ok()) return s;
  auto engine_opts = engine_options(options.common);
  if (!engine_opts.ok()) return engine_opts.status();
  if (options.common.max_num_seqs == 0) {
    engine_opts->max_num_seqs = std::max({1, options.num_beams, options.sampling.n});
  }
  std::string prompt = options.prompt;
  bool has_prompt = options.has_prompt;
  if (!options.file.empty()) {
    auto text = read_text(options.file);
    if (!text.ok()) return text.status();
    // Editors end a file with a line end that nobody means to send.
    if (text->ends_with('\n')) text->pop_back();
    if (text->ends_with('\r')) text->pop_back();
    prompt = (has_prompt ? prompt + "\n" : "") + *text;
    has_prompt = true;
  }
  const Clock::time_point start = Clock::now();
  auto engine = load_engine(options.common, *engine_opts);
  if (!engine.ok()) return engine.status();
  const double load_s = seconds_since(start);
  if (has_prompt) return complete(options, **engine, prompt, load_s);
  if (options.common.json) return invalid_argument("--json needs a prompt: give -p or -f");
  if (options.sampling.n > 1) return invalid_argument("--n needs a prompt: give -p or -f");
  auto formatter = engine::ChatFormatter::create((*engine)->files(), (*engine)->tokenizer());
  if (!formatter.ok())
    return formatter.status().with_context(
        "chat needs a template; give -p TEXT to complete a text");
  Chat chat(options, **engine, std::move(formatter).value());
  const Status status = chat.loop();
  *unanswered = chat.unanswered();
  return status;
}

}  // namespace pelton::cli
