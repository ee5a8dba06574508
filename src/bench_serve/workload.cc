#include "bench_serve/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "bench_serve/draws.h"

namespace pelton::bench_serve {
namespace {

constexpr int32_t kMostTokens = 1 << 20;
constexpr int32_t kMostRequests = 1 << 20;
// Spread of lengths in chats, as standard deviations of the logarithm: questions range wider.
constexpr double kPromptSigma = 1.1;
constexpr double kAnswerSigma = 0.9;
constexpr int32_t kShortest = 4;

// Common words that begin with a space in running text: one token each in most vocabularies.
constexpr std::array<std::string_view, 64> kWords = {
    "time",  "people",  "way",    "water",    "day",   "man",     "thing",   "woman",
    "life",  "child",   "world",  "school",   "state", "family",  "student", "group",
    "hand",  "part",    "place",  "case",     "week",  "company", "system",  "program",
    "work",  "number",  "night",  "point",    "home",  "room",    "mother",  "area",
    "money", "story",   "fact",   "month",    "lot",   "right",   "study",   "book",
    "eye",   "job",     "word",   "business", "issue", "side",    "kind",    "head",
    "house", "service", "friend", "father",   "power", "hour",    "game",    "line",
    "end",   "member",  "law",    "car",      "city",  "name",    "team",    "minute"};

Status in_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} must be in [{}, {}], not {}", name, low, high, value));
}

Status check_options(const WorkloadOptions& o) {
  if (Status s = in_range("--num-prompts", o.count, 1, kMostRequests); !s.ok()) return s;
  if (Status s = in_range("--input-len", o.input_len, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--output-len", o.output_len, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--output-cap", o.output_cap, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--prefix-len", o.prefix_len, 0, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--prefix-count", o.prefix_count, 1, kMostRequests); !s.ok()) return s;
  if (!(o.prefix_share >= 0 && o.prefix_share <= 1))
    return invalid_argument("--prefix-share must be in [0, 1]");
  if (o.last_id == 0) return {};
  if (Status s = in_range("--token-ids", o.first_id, 0, o.last_id); !s.ok()) return s;
  return {};
}

int32_t tokens_of(double length, int32_t most) {
  return static_cast<int32_t>(std::clamp(std::round(length), 1.0, static_cast<double>(most)));
}

int32_t draw_input(const WorkloadOptions& o, Random& random) {
  if (o.dataset != "sharegpt") return o.input_len;
  const double length = log_normal_draw(random, o.input_len, kPromptSigma);
  return std::max(kShortest, tokens_of(length, std::min(8 * o.input_len, kMostTokens)));
}

int32_t draw_output(const WorkloadOptions& o, Random& random) {
  if (o.dataset == "random") return o.output_len;
  const double length = o.dataset == "exponential"
                            ? exponential_draw(random) * o.output_len
                            : log_normal_draw(random, o.output_len, kAnswerSigma);
  return tokens_of(length, o.output_cap);
}

void append_tokens(const WorkloadOptions& o, Random& random, int32_t count, Prompt* prompt) {
  for (int32_t i = 0; i < count; ++i) {
    if (o.last_id > 0) {
      const auto range = static_cast<uint64_t>(o.last_id - o.first_id) + 1;
      prompt->ids.push_back(o.first_id + static_cast<int32_t>(random.below(range)));
      continue;
    }
    if (!prompt->text.empty()) prompt->text += ' ';
    prompt->text += kWords[random.below(kWords.size())];
  }
  prompt->planned_tokens += count;
}

}  // namespace

bool is_built_in(const std::string& dataset) {
  return dataset == "random" || dataset == "exponential" || dataset == "sharegpt";
}

Result<std::vector<Prompt>> make_workload(const WorkloadOptions& options) {
  if (Status s = check_options(options); !s.ok()) return s;
  std::vector<Prompt> prompts(static_cast<size_t>(options.count));
  // Apart, so that lengths stay the same whatever prefixes are asked for.
  Random lengths(options.seed ^ 0x1E46ULL);
  Random words(options.seed ^ 0x30A5ULL);
  Random hits(options.seed ^ 0x417ULL);
  for (Prompt& prompt : prompts) {
    const int32_t input = draw_input(options, lengths);
    prompt.max_tokens = draw_output(options, lengths);
    if (options.prefix_len > 0) {
      prompt.shares_prefix = hits.uniform() < options.prefix_share;
      const uint64_t which = hits.below(static_cast<uint64_t>(options.prefix_count));
      Random shared(options.seed ^ (0x9EF1ULL + (which << 32)));
      append_tokens(options, prompt.shares_prefix ? shared : words, options.prefix_len, &prompt);
    }
    append_tokens(options, words, input, &prompt);
  }
  return prompts;
}

}  // namespace pelton::bench_serve
