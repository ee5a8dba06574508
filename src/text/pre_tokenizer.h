// Normalized text to the pieces that the model encodes one by one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/matcher.h"

namespace pelton::text {

struct Piece {
  std::string_view text;  // valid UTF-8 (raw bytes after a ByteLevel step that does not map)
  bool at_start;          // begins where the whole input begins
};
using PieceSink = FunctionRef<void(const Piece&)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Calls `sink` for each piece in order, never for an empty one. A piece lives until its call
  // returns.
  virtual void split(const Piece& piece, PieceSink sink) const = 0;
};

enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

enum class PrependScheme { kAlways, kFirst, kNever };

struct ByteLevelOptions {
  bool add_prefix_space = true;
  bool use_regex = true;
  bool map = true;  // to the byte alphabet; false when the model takes raw bytes
};

struct MetaspaceOptions {
  std::string replacement;  // one character
  PrependScheme prepend_scheme = PrependScheme::kAlways;
  bool split = true;
  bool prepend_twice = false;  // also before a text that begins with the replacement
};

// With `invert` the text between matches counts as the matches.
std::unique_ptr<PreTokenizer> split_pre_tokenizer(std::unique_ptr<Matcher> pattern,
                                                  SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(const ByteLevelOptions& options);
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(MetaspaceOptions options);
std::unique_ptr<PreTokenizer> sequence_pre_tokenizer(
    std::vector<std::unique_ptr<PreTokenizer>> steps);
// A matcher for each single character with one of `mask`'s property bits.
std::unique_ptr<Matcher> char_matcher(uint16_t mask);
// `\w+|[^\w\s]+`, the Whitespace pre-tokenizer's pattern.
std::unique_ptr<Matcher> word_matcher();

}  // namespace pelton::text
