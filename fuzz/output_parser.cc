// Any answer of a model through every parser: the outcome does not depend on how the text is cut,
// nothing is lost from content that holds no call, and arguments in Python's syntax become JSON.
#include "text/output/output_parser.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "base/utf8.h"

namespace {

using namespace pelton::text;

struct Joined {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Joined&) const = default;
};

void take(const OutputPieces& pieces, Joined* joined) {
  using Kind = OutputPiece::Kind;
  for (const OutputPiece& piece : pieces) {
    if (piece.text.empty()) std::abort();
    if (piece.kind == Kind::kContent) joined->content += piece.text;
    if (piece.kind == Kind::kReasoning) joined->reasoning += piece.text;
    if (piece.kind == Kind::kCallName) joined->calls.emplace_back(piece.text, "");
    if (piece.kind == Kind::kCallArguments) joined->calls.back().second += piece.text;
    const bool call = piece.kind == Kind::kCallName || piece.kind == Kind::kCallArguments;
    if (call && piece.call != static_cast<int32_t>(joined->calls.size()) - 1) std::abort();
  }
}

Joined parse(std::string_view text, size_t step, const OutputOptions& options) {
  const auto parser = make_output_parser(options);
  Joined joined;
  for (size_t at = 0; at < text.size(); at += step) {
    OutputPieces pieces;
    parser->feed(text.substr(at, step), &pieces);
    take(pieces, &joined);
  }
  OutputPieces pieces;
  parser->finish(&pieces);
  take(pieces, &joined);
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  OutputOptions options{.calls = static_cast<CallFormat>(data[0] % 6),
                        .reasoning = static_cast<ReasoningFormat>(data[0] / 6 % 5),
                        .reasoning_open = (data[1] & 1) != 0,
                        .parallel_calls = (data[1] & 2) == 0};
  if ((data[1] & 4) != 0) options.tools = {"f", "get_weather"};
  if (make_output_parser(options) == nullptr) return 0;
  const Joined whole = parse(text, text.size() + 1, options);
  if (parse(text, 1, options) != whole || parse(text, 1 + data[1] / 8, options) != whole)
    std::abort();
  return 0;
}
