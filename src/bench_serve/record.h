// What was seen of one request. Times are seconds since the start of the run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::bench_serve {

enum class Outcome {
  kOk,
  kConnect,    // no connection
  kTimeout,    // the client's own patience
  kHttp,       // a status other than 200
  kCut,        // the connection ended before the answer did
  kMalformed,  // not HTTP, not an event stream or not JSON
  kError,      // an error inside of a stream that had begun well
  kEmpty,      // an answer without a token
};
constexpr int kOutcomes = 8;

// "ok", "connect", "timeout", …
std::string_view outcome_name(Outcome outcome);

struct Record {
  int index = 0;
  double due = 0;
  double sent = 0;
  double first = 0;           // first piece of text; 0 = none
  double ended = 0;           // last byte, or the error
  std::vector<double> gaps;   // between pieces of text
  int64_t prompt_tokens = 0;  // as the server counts them; planned ones when it does not
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;  // likewise; pieces of text when it does not
  bool counted_by_server = false;
  bool shares_prefix = false;
  Outcome outcome = Outcome::kOk;
  int http_status = 0;
  std::string detail;  // of an error, one line

  bool ok() const { return outcome == Outcome::kOk; }
  double ttft() const { return first - sent; }
  double e2e() const { return ended - sent; }
  // Seconds a token after the first; 0 for answers of one token.
  double tpot() const {
    return output_tokens > 1 ? (ended - first) / static_cast<double>(output_tokens - 1) : 0;
  }
};

// The error's kind as it is counted: "connect", "http 429", …
std::string error_kind(const Record& record);

}  // namespace pelton::bench_serve
