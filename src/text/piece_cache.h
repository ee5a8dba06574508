// Ids of pieces met earlier in the same text. Direct-mapped and bounded: a miss or an overwritten
// entry costs time, never correctness.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::text {

class PieceCache {
 public:
  // Off until switched on: for a short text filling it costs more than it saves.
  void enable() {
    if (entries_.empty()) entries_.resize(kEntries);
  }
  bool usable(std::string_view piece) const {
    return !entries_.empty() && piece.size() <= kMaxPiece;
  }
  // Appends the ids of a known piece.
  bool lookup(std::string_view piece, uint64_t hash, std::vector<int32_t>* out) const {
    const Entry& entry = entries_[hash % kEntries];
    if (entry.hash != hash || piece != std::string_view(keys_).substr(entry.key, entry.length)) {
      return false;
    }
    const auto begin = ids_.begin() + entry.ids;
    out->insert(out->end(), begin, begin + entry.count);
    return true;
  }
  void store(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (keys_.size() > kMaxKeyBytes || ids_.size() > kMaxKeyBytes) {
      keys_.clear();
      ids_.clear();
      entries_.assign(kEntries, Entry{});
    }
    entries_[hash % kEntries] = {
        hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(ids_.size()),
        static_cast<uint16_t>(piece.size()), static_cast<uint16_t>(ids.size())};
    keys_.append(piece);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

 private:
  static constexpr size_t kEntries = 1 << 14;
  static constexpr size_t kMaxPiece = 64;
  static constexpr size_t kMaxKeyBytes = 4u << 20;
  struct Entry {
    uint64_t hash = 0;
    uint32_t key = 0, ids = 0;  // offsets
    uint16_t length = 0, count = 0;
  };
  std::vector<Entry> entries_;
  std::string keys_;
  std::vector<int32_t> ids_;
};

}  // namespace pelton::text
