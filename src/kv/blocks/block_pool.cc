#include "kv/blocks/block_pool.h"

#include <fmt/format.h>

#include "base/check.h"

namespace pelton::kv {

BlockPool::BlockPool(int32_t num_blocks)
    : references_(index(num_blocks)), retained_(index(num_blocks)), cached_(num_blocks) {
  free_.reserve(index(num_blocks));
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_.push_back(block);
}

int32_t BlockPool::take() {
  int32_t block = kNoBlock;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (cached_.size() > 0) {
    block = cached_.oldest();
    cached_.remove(block);
  } else {
    return kNoBlock;
  }
  references_[index(block)] = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  if (references_[index(block)] == 0) {
    check(retained(block), "a free block has no content to share");
    cached_.remove(block);
  }
  ++references_[index(block)];
}

void BlockPool::give_back(int32_t block) {
  check(references_[index(block)] > 0, "a block is given back by a holder");
  if (--references_[index(block)] > 0) return;
  if (retained(block)) {
    cached_.push(block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::set_retained(int32_t block, bool retained) {
  if (this->retained(block) == retained) return;
  retained_[index(block)] = retained ? 1 : 0;
  if (references_[index(block)] > 0) return;
  check(!retained, "a free block has no content to retain");
  cached_.remove(block);
  free_.push_back(block);
}

Status BlockPool::check_integrity() const {
  std::vector<uint8_t> listed(references_.size());
  for (int32_t block : free_) {
    if (block < 0 || block >= size()) return internal_error(fmt::format("free block {}", block));
    if (listed[index(block)]++ != 0) {
      return internal_error(fmt::format("block {} is free twice", block));
    }
  }
  int32_t cached = 0;
  for (int32_t block = 0; block < size(); ++block) {
    const bool is_free = listed[index(block)] != 0;
    const bool is_cached = cached_.contains(block);
    const int32_t count = references(block);
    cached += is_cached ? 1 : 0;
    if (count < 0 || (count > 0) == (is_free || is_cached) || (is_free && is_cached)) {
      return internal_error(fmt::format("block {}: {} references, free {}, cached {}", block, count,
                                        is_free, is_cached));
    }
    if (is_cached != (count == 0 && retained(block))) {
      return internal_error(
          fmt::format("block {}: retained {}, cached {}", block, retained(block), is_cached));
    }
  }
  if (cached != cached_.size()) {
    return internal_error(fmt::format("{} cached blocks, {} counted", cached_.size(), cached));
  }
  return {};
}

}  // namespace pelton::kv
