// Reasoning before the answer, between its markers.
#include <array>
#include <utility>

#include "text/output/buffered_parser.h"
#include "text/output/reasoning_markers.h"

namespace pelton::text {
namespace {

class ReasoningParser final : public BufferedParser {
 public:
  ReasoningParser(const OutputOptions& options, std::unique_ptr<OutputParser> next)
      : markers_(reasoning_markers(options.reasoning)),
        at_(options.reasoning_open || options.reasoning == ReasoningFormat::kThinkOpen
                ? At::kOpened
                : At::kBegin),
        next_(std::move(next)) {}

 private:
  enum class At : uint8_t { kBegin, kOpened, kInside, kAfter, kAnswer };

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kBegin:
        return step_begin();
      case At::kOpened:
        return step_opened();
      case At::kInside:
        return step_inside(out);
      case At::kAfter:
        if (!skip_space()) break;
        at_ = At::kAnswer;
        return true;
      case At::kAnswer:
        pass(rest(), out);
        consume(rest().size());
        break;
    }
    finish_next(out);
    return false;
  }

  void finish_next(OutputPieces* out) {
    if (at_end() && next_) std::exchange(next_, nullptr)->finish(out);
  }

  // The opening marker, with white space before it or not.
  bool step_begin() {
    size_t n = 0;
    while (n < rest().size() && n <= kMaxHeldSpace && is_space(rest()[n])) ++n;
    const std::string_view text = rest().substr(n);
    const std::string_view open = markers_.open;
    const bool could =
        n <= kMaxHeldSpace && text.size() < open.size() && open.substr(0, text.size()) == text;
    if (could && !at_end()) return false;
    if (n > kMaxHeldSpace || text.substr(0, open.size()) != open) {
      at_ = At::kAnswer;
      return true;
    }
    consume(n + open.size());
    at_ = At::kInside;
    trim_ = true;
    return true;
  }

  // Reasoning from the first character on; models may write the marker all the same.
  bool step_opened() {
    if (!skip_space()) return false;
    if (take(markers_.open) == Match::kMore) return false;
    at_ = At::kInside;
    trim_ = true;
    return true;
  }

  bool step_inside(OutputPieces* out) {
    const std::array<std::string_view, 1> close = {markers_.close};
    size_t which = 0;
    if (!pass_until(close, OutputPiece::Kind::kReasoning, &which, out)) return false;
    at_ = At::kAfter;
    return true;
  }

  void pass(std::string_view text, OutputPieces* out) {
    if (next_) {
      next_->feed(text, out);
    } else {
      append_piece(OutputPiece::Kind::kContent, -1, text, out);
    }
  }

  const ReasoningMarkers markers_;
  At at_;
  std::unique_ptr<OutputParser> next_;
};

}  // namespace

std::unique_ptr<OutputParser> make_reasoning_parser(const OutputOptions& options,
                                                    std::unique_ptr<OutputParser> next) {
  return std::make_unique<ReasoningParser>(options, std::move(next));
}

}  // namespace pelton::text
