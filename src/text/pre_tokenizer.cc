#include "text/pre_tokenizer.h"

#include "text/unicode.h"
#include "text/vocabulary.h"

namespace pelton::text {
namespace {

// Joins a text's matches and gaps into pieces as a SplitBehavior asks. Holds back at most one part.
class Joiner {
 public:
  Joiner(const Piece& piece, SplitBehavior behavior, PieceSink sink)
      : piece_(piece), behavior_(behavior), sink_(sink) {}

  void add(Span part, bool is_match) {
    if (part.begin == part.end) return;
    if (behavior_ == SplitBehavior::kRemoved) {
      if (!is_match) emit(part);
    } else if (behavior_ == SplitBehavior::kIsolated) {
      emit(part);
    } else if (joins(is_match)) {
      held_.end = part.end;
      held_match_ = is_match;
    } else {
      flush();
      held_ = part;
      held_match_ = is_match;
      holding_ = true;
    }
  }
  void flush() {
    if (holding_) emit(held_);
    holding_ = false;
  }

 private:
  bool joins(bool is_match) const {
    if (!holding_) return false;
    if (behavior_ == SplitBehavior::kContiguous) return is_match == held_match_;
    if (behavior_ == SplitBehavior::kMergedWithPrevious) return is_match && !held_match_;
    return held_match_ && !is_match;
  }
  void emit(Span part) {
    sink_({piece_.text.substr(part.begin, part.end - part.begin),
           piece_.at_start && part.begin == 0});
  }

  const Piece& piece_;
  SplitBehavior behavior_;
  PieceSink sink_;
  Span held_;
  bool held_match_ = false, holding_ = false;
};

class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(std::unique_ptr<Matcher> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(const Piece& piece, PieceSink sink) const override {
    Joiner joiner(piece, behavior_, sink);
    size_t pos = 0;
    for (Span match; pattern_->next(piece.text, pos, &match); pos = match.end) {
      joiner.add({pos, match.begin}, invert_);
      joiner.add(match, !invert_);
    }
    joiner.add({pos, piece.text.size()}, invert_);
    joiner.flush();
  }

 private:
  std::unique_ptr<Matcher> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const ByteLevelOptions& options)
      : options_(options), pattern_(known_matcher(kGpt2Pattern)) {}

  void split(const Piece& piece, PieceSink sink) const override {
    std::string prefixed;
    std::string_view text = piece.text;
    if (options_.add_prefix_space && !text.starts_with(' ')) {
      prefixed.append(" ").append(text);
      text = prefixed;
    }
    if (!options_.use_regex) return emit({text, piece.at_start}, sink);
    size_t pos = 0;
    for (Span match; pattern_->next(text, pos, &match); pos = match.end) {
      emit({text.substr(match.begin, match.end - match.begin), piece.at_start && pos == 0}, sink);
    }
  }

 private:
  void emit(const Piece& piece, PieceSink sink) const {
    if (piece.text.empty()) return;
    if (!options_.map) return sink(piece);
    const std::string mapped = bytes_to_alphabet(piece.text);
    sink({mapped, piece.at_start});
  }

  ByteLevelOptions options_;
  std::unique_ptr<Matcher> pattern_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(MetaspaceOptions options)
      : options_(std::move(options)), pattern_(literal_matcher(options_.replacement)) {}

  void split(const Piece& piece, PieceSink sink) const override {
    std::string text;
    text.reserve(piece.text.size() + 16);
    for (const char c : piece.text) {
      if (c == ' ') {
        text.append(options_.replacement);
      } else {
        text.push_back(c);
      }
    }
    const bool wanted = options_.prepend_scheme == PrependScheme::kAlways ||
                        (options_.prepend_scheme == PrependScheme::kFirst && piece.at_start);
    if (wanted && (options_.prepend_twice || !text.starts_with(options_.replacement))) {
      text.insert(0, options_.replacement);
    }
    const Piece whole{text, piece.at_start};
    if (!options_.split) return sink(whole);
    Joiner joiner(whole, SplitBehavior::kMergedWithNext, sink);
    size_t pos = 0;
    for (Span match; pattern_->next(text, pos, &match); pos = match.end) {
      joiner.add({pos, match.begin}, false);
      joiner.add(match, true);
    }
    joiner.add({pos, text.size()}, false);
    joiner.flush();
  }

 private:
  MetaspaceOptions options_;
  std::unique_ptr<Matcher> pattern_;
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void split(const Piece& piece, PieceSink sink) const override { run(0, piece, sink); }

 private:
  // As deep as the sequence is long, which the loader bounds.
  void run(size_t step, const Piece& piece, PieceSink sink) const {
    if (step == steps_.size()) return sink(piece);
    steps_[step]->split(piece, [&](const Piece& part) { run(step + 1, part, sink); });
  }

  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

class CharMatcher : public Matcher {
 public:
  explicit CharMatcher(uint16_t mask) : mask_(mask) {}
  bool next(std::string_view text, size_t from, Span* match) const override {
    for (size_t pos = from; pos < text.size();) {
      const Char c = char_at(text, pos);
      if (char_bits(c.code) & mask_) {
        *match = {pos, pos + c.length};
        return true;
      }
      pos += c.length;
    }
    return false;
  }

 private:
  uint16_t mask_;
};

class WordMatcher : public Matcher {
 public:
  bool next(std::string_view text, size_t from, Span* match) const override {
    const auto kind = [&](size_t pos) -> int {
      const uint16_t bits = char_bits(char_at(text, pos).code);
      if (bits & kWord) return 1;
      return bits & kSpace ? 0 : 2;
    };
    size_t pos = from;
    while (pos < text.size() && kind(pos) == 0) pos += char_at(text, pos).length;
    if (pos >= text.size()) return false;
    const int wanted = kind(pos);
    size_t end = pos;
    while (end < text.size() && kind(end) == wanted) end += char_at(text, end).length;
    *match = {pos, end};
    return true;
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::unique_ptr<Matcher> pattern,
                                                  SplitBehavior behavior, bool invert) {
  return std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, invert);
}
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(const ByteLevelOptions& options) {
  return std::make_unique<ByteLevelPreTokenizer>(options);
}
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(MetaspaceOptions options) {
  return std::make_unique<MetaspacePreTokenizer>(std::move(options));
}
std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(
    std::vector<std::unique_ptr<PreTokenizer>> steps) {
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}
std::unique_ptr<Matcher> char_matcher(uint16_t mask) { return std::make_unique<CharMatcher>(mask); }
std::unique_ptr<Matcher> word_matcher() { return std::make_unique<WordMatcher>(); }

}  // namespace pelton::text
