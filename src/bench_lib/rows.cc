#include "bench_lib/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace pelton::bench_lib {
namespace {

constexpr int32_t kMostTokens = 1 << 20;
constexpr int32_t kMostSequences = 4096;

// Rows of requests with lengths.
struct LoadName {
  std::string_view word;
  RowKind kind;
};
constexpr LoadName kLoads[] = {{"offline_", RowKind::kOffline},
                               {"continuous_", RowKind::kContinuous},
                               {"static_", RowKind::kStatic},
                               {"batching_", RowKind::kBatching}};

// Takes pieces off the front of a name; after the first that is not there, nothing more.
class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool word(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  // A number in [1, most].
  bool number(int32_t most, int32_t* value) {
    int32_t parsed = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), parsed);
    if (error != std::errc() || parsed < 1 || parsed > most) return false;
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    *value = parsed;
    return true;
  }
  // A word and its number, or neither.
  bool maybe(std::string_view word, int32_t most, int32_t* value) {
    return !this->word(word) || number(most, value);
  }
  bool done() const { return left_.empty(); }

 private:
  std::string_view left_;
};

bool lengths(Reader& in, RowSpec* row) {
  return in.number(kMostTokens, &row->input) && in.word("/") &&
         in.number(kMostTokens, &row->output) && in.maybe("_r", kMostTokens, &row->requests);
}

bool prompts(Reader& in, RowSpec* row) {
  if (!in.number(kMostTokens, &row->input)) return false;
  if (!in.word("x")) return in.maybe("@d", kMostTokens, &row->depth);
  row->kind = RowKind::kPrompts;
  row->sequences = row->input;
  return row->sequences <= kMostSequences && in.number(kMostTokens, &row->input);
}

bool decode(Reader& in, RowSpec* row) {
  row->kind = RowKind::kDecode;
  return in.number(kMostTokens, &row->output) && in.maybe("_b", kMostSequences, &row->sequences) &&
         in.maybe("@d", kMostTokens, &row->depth);
}

std::optional<RowSpec> parse(std::string_view name) {
  Reader in(name);
  RowSpec row;
  bool good = false;
  if (in.word("pp")) {
    good = prompts(in, &row);
  } else if (in.word("tg")) {
    good = decode(in, &row);
  } else {
    for (const LoadName& load : kLoads) {
      if (good || !in.word(load.word)) continue;
      row.kind = load.kind;
      good = lengths(in, &row);
    }
  }
  if (!good || !in.done()) return std::nullopt;
  return row;
}

std::string with(const char* word, int32_t value, int32_t neutral) {
  return value == neutral ? std::string() : fmt::format("{}{}", word, value);
}

}  // namespace

Result<RowSpec> parse_row(std::string_view name) {
  if (const auto row = parse(name)) return *row;
  return invalid_argument(
      fmt::format("'{}' is no row; rows are named like pp512, tg128_b8@d1024, pp8x2048, "
                  "offline_128/128, batching_256/256_r1000",
                  name));
}

std::string row_name(const RowSpec& row) {
  switch (row.kind) {
    case RowKind::kPrompt:
      return fmt::format("pp{}{}", row.input, with("@d", row.depth, 0));
    case RowKind::kPrompts:
      return fmt::format("pp{}x{}", row.sequences, row.input);
    case RowKind::kDecode:
      return fmt::format("tg{}{}{}", row.output, with("_b", row.sequences, 1),
                         with("@d", row.depth, 0));
    default:
      return fmt::format("{}{}/{}{}", std::ranges::find(kLoads, row.kind, &LoadName::kind)->word,
                         row.input, row.output, with("_r", row.requests, 0));
  }
}

}  // namespace pelton::bench_lib
