#include "server/output_split.h"

#include <fmt/format.h>

#include <utility>

namespace pelton::server {

using Kind = text::OutputPiece::Kind;

text::OutputPieces OutputSplit::take(std::string_view text, bool last) {
  text::OutputPieces pieces;
  if (parser_ == nullptr) {
    if (!text.empty()) pieces.push_back({.text = std::string(text)});
    return pieces;
  }
  parser_->feed(text, &pieces);
  if (last) parser_->finish(&pieces);
  for (const text::OutputPiece& piece : pieces) called_ = called_ || piece.kind == Kind::kCallName;
  return pieces;
}

SplitAnswer split_answer(std::string_view text, const text::OutputOptions& options) {
  SplitAnswer answer;
  for (text::OutputPiece& piece : OutputSplit(options).take(text, true)) {
    switch (piece.kind) {
      case Kind::kContent:
        answer.content += piece.text;
        break;
      case Kind::kReasoning:
        answer.reasoning += piece.text;
        break;
      case Kind::kCallName:
        answer.calls.push_back({std::move(piece.text), {}});
        break;
      case Kind::kCallArguments:
        answer.calls.back().arguments += piece.text;
        break;
    }
  }
  return answer;
}

std::string tool_call_id(std::string_view prefix, std::string_view answer, int32_t choice,
                         int32_t call, text::CallFormat format) {
  // FNV-1a: `answer` is the server's own and unique, so the ids are as good as random.
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : fmt::format("{}/{}/{}", answer, choice, call))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  if (format != text::CallFormat::kMistral) return fmt::format("{}{:016x}", prefix, hash);
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string id;
  for (int i = 0; i < 9; ++i) {
    id += kDigits[hash % kDigits.size()];
    hash /= kDigits.size();
  }
  return id;
}

}  // namespace pelton::server
