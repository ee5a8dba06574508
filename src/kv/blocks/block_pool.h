// Who holds which block. A block is free (never used or forgotten), held (reference count above 0),
// or cached: unreferenced but with content worth keeping, reclaimable at once in the order of
// eviction.h. Take, give back and share are O(1); nothing allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/blocks/eviction.h"
#include "pelton/status.h"

namespace pelton::kv {

constexpr int32_t kNoBlock = -1;

class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  // Blocks that take() can give: free and cached ones.
  int32_t available() const { return static_cast<int32_t>(free_.size()) + cached_.size(); }
  int32_t cached() const { return cached_.size(); }
  int32_t references(int32_t block) const { return references_[index(block)]; }
  // The content is known to the prefix tree: the block is kept when its last holder lets go.
  bool retained(int32_t block) const { return retained_[index(block)] != 0; }

  // A block with one reference, or kNoBlock. Free blocks go first; one taken from the cache is
  // still retained(): the caller forgets its content and then calls set_retained(block, false).
  int32_t take();
  // One more holder of a held or cached block.
  void share(int32_t block);
  // One holder less.
  void give_back(int32_t block);
  // Cached blocks become free when no longer retained.
  void set_retained(int32_t block, bool retained);

  // Free list, eviction list, flags and counts agree; the first contradiction as text.
  Status check_integrity() const;

 private:
  static size_t index(int32_t block) { return static_cast<size_t>(block); }

  std::vector<int32_t> references_;
  std::vector<uint8_t> retained_;
  std::vector<int32_t> free_;  // a stack: the last given back is the warmest
  LruList cached_;
};

}  // namespace pelton::kv
