// Tokens by id and ids by token.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/hash_index.h"

namespace pelton::text {

constexpr int64_t kMaxVocabulary = 4'000'000;
constexpr int64_t kMaxMerges = 4'000'000;
// The cost of a text grows with the longest token, so there is a limit.
constexpr size_t kMaxTokenBytes = 4096;

class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(size_t expected) : index_(expected) { pieces_.reserve(expected); }
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Ids may come in any order and leave holes; an id outside [0, kMaxVocabulary) or given twice is
  // an error, a text given twice keeps its first id.
  Status add(std::string piece, int64_t id);
  // To be called once after the last add(): makes find() work.
  void finish();

  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }  // largest id + 1
  bool contains(int32_t id) const { return id >= 0 && id < size() && present_[id]; }
  std::string_view piece(int32_t id) const {
    return contains(id) ? std::string_view(pieces_[id]) : std::string_view();
  }
  size_t longest() const { return longest_; }  // bytes
  int32_t find(std::string_view piece) const { return index_.find(piece); }
  // As find(), but control tokens are absent: what text may become by way of the model.
  int32_t find_text(std::string_view piece) const {
    const int32_t id = find(piece);
    return id >= 0 && is_control(id) ? -1 : id;
  }
  void mark_control(int32_t id) {
    if (control_.size() <= static_cast<size_t>(id)) control_.resize(id + 1, false);
    control_[id] = true;
  }
  bool is_control(int32_t id) const {
    return static_cast<size_t>(id) < control_.size() && control_[id];
  }

 private:
  std::vector<std::string> pieces_;
  std::vector<bool> present_, control_;
  std::vector<int32_t> order_;  // ids as added
  StringIndex index_;
  size_t longest_ = 0;
};

// The byte of a byte token, spelled exactly "<0xNN>" with two upper-case hexadecimal digits.
std::optional<uint8_t> parse_byte_token(std::string_view piece);
std::string byte_token(uint8_t byte);

// The alphabet of byte-level tokenizers: a printable character for each byte.
uint32_t byte_to_char(uint8_t byte);
// The byte of a character of that alphabet, -1 for any other.
int char_to_byte(uint32_t code);
std::string bytes_to_alphabet(std::string_view bytes);
// Absent when a character is outside the alphabet. `text` is valid UTF-8.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace pelton::text
