// SentencePiece's precompiled character map: a double-array trie from byte strings to replacements.
// Layout: little-endian u32 trie size in bytes, the trie's u32 units, then zero-terminated
// replacement strings that the trie's values point into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::text {

class Charsmap {
 public:
  // How keys are applied. kSentencePiece: the longest key at each place. kGraphemes: as the
  // tokenizers library does, the shortest key of a short grapheme cluster replaces all of it.
  enum class Mode { kSentencePiece, kGraphemes };

  static Result<Charsmap> parse(std::string_view blob);

  std::string apply(std::string_view text, Mode mode) const;

 private:
  struct Match {
    size_t length;
    std::string_view replacement;
  };
  std::optional<Match> find(std::string_view text, bool longest) const;
  void apply_to_cluster(std::string_view cluster, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

std::optional<std::string> decode_base64(std::string_view text);

}  // namespace pelton::text
