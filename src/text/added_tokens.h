// Tokens that are found in the text itself, before or after normalization, and cut out of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "text/hash_index.h"
#include "text/tokenizer.h"

namespace pelton::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;             // not inside a word
  bool lstrip = false, rstrip = false;  // takes the white space before / after it along
  bool normalized = false;              // matched in normalized text
  bool special = false;                 // control token
};

// Leftmost-longest occurrences of a set of strings. One pass of an Aho-Corasick automaton over the
// reversed text finds the longest string that starts at each place; so the cost is linear in the
// text whatever the strings are.
class AddedTokenFinder {
 public:
  // `patterns[i]` is what tokens[i] looks like in the text to be searched. Empty ones never match;
  // the first of two equal ones counts.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  // A part of the text: a token, or (token null) plain text.
  struct Part {
    std::string_view text;
    const AddedToken* token;
  };
  // Calls `sink` for all parts in order. Special tokens are plain text without `parse_special` and
  // where they touch one of `plain` (ascending, disjoint).
  void split(std::string_view text, bool parse_special, std::span<const TextRange> plain,
             FunctionRef<void(const Part&)> sink) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    int32_t fail = 0;
    int32_t token = -1;  // longest token that ends here, by way of failures too
    int32_t length = 0;  // of its pattern
  };
  struct Found {
    size_t begin;
    int32_t token, length;
  };

  int32_t child(int32_t node, uint8_t byte) const;
  std::vector<Found> find_all(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  PairIndex edges_;                  // (node, byte) -> node
  std::vector<int32_t> root_edges_;  // by byte, 0 for none
};

}  // namespace pelton::text
