// Order in which cached blocks that nobody holds are given up: least recently released first.
// Intrusive over block numbers: every operation is O(1) and nothing allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace pelton::kv {

class LruList {
 public:
  explicit LruList(int32_t num_blocks)
      : links_(static_cast<size_t>(num_blocks) + 1), end_(num_blocks) {
    links_[index(end_)] = {end_, end_};
  }

  int32_t size() const { return size_; }
  bool contains(int32_t block) const { return links_[index(block)].next != kUnlinked; }

  // As the most recently released.
  void push(int32_t block) {
    check(!contains(block), "a block enters the eviction list once");
    const int32_t last = links_[index(end_)].previous;
    links_[index(block)] = {last, end_};
    links_[index(last)].next = block;
    links_[index(end_)].previous = block;
    ++size_;
  }

  void remove(int32_t block) {
    check(contains(block), "only a listed block leaves the eviction list");
    const Link link = links_[index(block)];
    links_[index(link.previous)].next = link.next;
    links_[index(link.next)].previous = link.previous;
    links_[index(block)] = {};
    --size_;
  }

  // The least recently released block; the list must not be empty.
  int32_t oldest() const {
    check(size_ > 0, "an empty eviction list has no oldest block");
    return links_[index(end_)].next;
  }

 private:
  static constexpr int32_t kUnlinked = -1;
  struct Link {
    int32_t previous = kUnlinked;
    int32_t next = kUnlinked;
  };
  static size_t index(int32_t block) { return static_cast<size_t>(block); }

  std::vector<Link> links_;  // one a block, then the sentinel
  int32_t end_;
  int32_t size_ = 0;
};

}  // namespace pelton::kv
