#include "kv/blocks/prefix_tree.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace pelton::kv {

PrefixTree::PrefixTree(int32_t num_blocks, int32_t block_tokens, int32_t hash_bits)
    : block_tokens_(block_tokens),
      hash_bits_(hash_bits),
      nodes_(index(num_blocks)),
      tokens_(index(num_blocks) * static_cast<size_t>(block_tokens)),
      buckets_(std::bit_ceil(2 * index(num_blocks) + 1), kNoBlock) {}

SaltId PrefixTree::acquire_salt(std::string_view salt) {
  if (const auto found = salt_ids_.find(salt); found != salt_ids_.end()) {
    ++salts_[index(found->second)].references;
    return found->second;
  }
  if (unused_salts_.empty()) {
    salts_.emplace_back();
    unused_salts_.reserve(salts_.capacity());
    unused_salts_.push_back(static_cast<SaltId>(salts_.size() - 1));
  }
  const SaltId id = unused_salts_.back();
  std::string text(salt);
  salt_ids_.emplace(salt, id);
  // The last allocation is behind: a failed one leaves at most an unused place.
  unused_salts_.pop_back();
  salts_[index(id)] = {std::move(text), 1};
  return id;
}

void PrefixTree::release_salt(SaltId salt) {
  Salt& entry = salts_[index(salt)];
  check(entry.references > 0, "a salt is released by a holder");
  if (--entry.references > 0) return;
  salt_ids_.erase(entry.text);
  entry.text.clear();
  unused_salts_.push_back(salt);
}

PrefixHash PrefixTree::narrow(PrefixHash hash) const {
  if (hash_bits_ >= 128) return hash;
  if (hash_bits_ >= 64) return {hash.low, 0};
  return {hash.low & ((uint64_t{1} << hash_bits_) - 1), 0};
}

PrefixHash PrefixTree::root_hash(SaltId salt) const {
  const std::string& text = salts_[index(salt)].text;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return narrow({hash.low64, hash.high64});
}

PrefixHash PrefixTree::extend(PrefixHash parent, std::span<const int32_t> tokens) const {
  // Two hashes instead of one over a joined copy of parent and tokens.
  const XXH128_hash_t own = XXH3_128bits(tokens.data(), tokens.size_bytes());
  const uint64_t words[4] = {own.low64, own.high64, parent.low, parent.high};
  const XXH128_hash_t hash = XXH3_128bits(words, sizeof(words));
  return narrow({hash.low64, hash.high64});
}

std::span<const int32_t> PrefixTree::tokens(int32_t block) const {
  const auto stride = static_cast<size_t>(block_tokens_);
  return std::span(tokens_).subspan(index(block) * stride, stride);
}

bool PrefixTree::matches(int32_t block, PrefixHash hash, int32_t parent, SaltId salt,
                         std::span<const int32_t> wanted) const {
  const Node& node = nodes_[index(block)];
  return node.hash == hash && node.parent == parent && (parent != kNoBlock || node.salt == salt) &&
         std::ranges::equal(tokens(block), wanted);
}

int32_t PrefixTree::find(PrefixHash hash, int32_t parent, SaltId salt,
                         std::span<const int32_t> tokens) const {
  for (int32_t block = buckets_[bucket(hash)]; block != kNoBlock;
       block = nodes_[index(block)].next) {
    if (matches(block, hash, parent, salt, tokens)) return block;
  }
  return kNoBlock;
}

bool PrefixTree::insert(int32_t block, PrefixHash hash, int32_t parent, SaltId salt,
                        std::span<const int32_t> tokens) {
  check(!contains(block), "a block is one node of the prefix tree");
  check(parent == kNoBlock || contains(parent), "a node's parent is a node");
  check(static_cast<int32_t>(tokens.size()) == block_tokens_, "a node is one full block");
  int32_t length = 0;
  for (int32_t other = buckets_[bucket(hash)]; other != kNoBlock;
       other = nodes_[index(other)].next) {
    if (++length >= kMaxBucket) return false;
  }
  Node& node = nodes_[index(block)];
  node = {hash, parent, 0, buckets_[bucket(hash)], salt, true};
  buckets_[bucket(hash)] = block;
  const auto stride = static_cast<size_t>(block_tokens_);
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(index(block) * stride));
  if (parent == kNoBlock) {
    ++salts_[index(salt)].references;
  } else {
    ++nodes_[index(parent)].children;
  }
  ++size_;
  return true;
}

void PrefixTree::erase(int32_t block) {
  Node& node = nodes_[index(block)];
  check(node.present, "only a node is erased");
  check(node.children == 0, "children are erased before their parent");
  int32_t* link = &buckets_[bucket(node.hash)];
  while (*link != block) link = &nodes_[index(*link)].next;
  *link = node.next;
  if (node.parent == kNoBlock) {
    release_salt(node.salt);
  } else {
    --nodes_[index(node.parent)].children;
  }
  node = {};
  --size_;
}

Status PrefixTree::check_integrity() const {
  std::vector<int32_t> children(nodes_.size());
  std::vector<uint8_t> reached(nodes_.size());
  int32_t present = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.present) continue;
    ++present;
    if (node.parent == kNoBlock) {
      if (salts_[index(node.salt)].references <= 0) {
        return internal_error(fmt::format("node {} has a released salt", i));
      }
    } else if (!contains(node.parent)) {
      return internal_error(fmt::format("node {} has the lost parent {}", i, node.parent));
    } else {
      ++children[index(node.parent)];
    }
  }
  for (int32_t first : buckets_) {
    for (int32_t block = first; block != kNoBlock; block = nodes_[index(block)].next) {
      if (!contains(block) || reached[index(block)]++ != 0) {
        return internal_error(fmt::format("bucket entry {} is wrong", block));
      }
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].children != children[i] || (reached[i] != 0) != nodes_[i].present) {
      return internal_error(fmt::format("node {}: {} children, {} counted, reached {}", i,
                                        nodes_[i].children, children[i], reached[i]));
    }
  }
  if (present != size_) return internal_error(fmt::format("{} nodes, {} counted", size_, present));
  return {};
}

}  // namespace pelton::kv
