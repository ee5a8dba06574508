// Which full blocks hold which tokens. A node is a block whose keys and values were computed for
// block_tokens given tokens that follow its parent's; the roots are one a salt. Nodes are found by
// a chain hash of (parent's hash, tokens), but a hit is always proved: parent and tokens (and with
// the root the salt) are compared, so a collision costs time and never a wrong answer.
//
// Numbers stand for blocks; all storage is one entry a block, taken at construction.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/blocks/block_pool.h"
#include "pelton/status.h"

namespace pelton::kv {

struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const PrefixHash&, const PrefixHash&) = default;
};

// Stands for a salt's text while a reference to it is held.
using SaltId = int32_t;
inline constexpr SaltId kNoSalt = -1;

class PrefixTree {
 public:
  // `hash_bits` below 128 keeps only so many bits of a hash: for tests, which force collisions.
  PrefixTree(int32_t num_blocks, int32_t block_tokens, int32_t hash_bits = 128);

  // Salts: entries are found only under the salt they were made with.
  SaltId acquire_salt(std::string_view salt);
  void release_salt(SaltId salt);

  PrefixHash root_hash(SaltId salt) const;
  PrefixHash extend(PrefixHash parent, std::span<const int32_t> tokens) const;

  // The block of these tokens after `parent` (kNoBlock: under the salt's root), or kNoBlock.
  // `tokens` is exactly one block.
  int32_t find(PrefixHash hash, int32_t parent, SaltId salt, std::span<const int32_t> tokens) const;
  // Adds a node that find() does not find. False when too many nodes share the hash's bucket:
  // the block then stays unknown, which bounds the time of a lookup for any choice of tokens.
  bool insert(int32_t block, PrefixHash hash, int32_t parent, SaltId salt,
              std::span<const int32_t> tokens);
  // Forgets a node, which must have no children.
  void erase(int32_t block);

  bool contains(int32_t block) const { return nodes_[index(block)].present; }
  int32_t children(int32_t block) const { return nodes_[index(block)].children; }
  int32_t parent(int32_t block) const { return nodes_[index(block)].parent; }
  int32_t size() const { return size_; }
  std::span<const int32_t> tokens(int32_t block) const;

  Status check_integrity() const;

 private:
  static constexpr int32_t kMaxBucket = 32;
  struct Node {
    PrefixHash hash;
    int32_t parent = kNoBlock;
    int32_t children = 0;
    int32_t next = kNoBlock;  // in the bucket
    SaltId salt = 0;          // of a child of the root; it holds a reference
    bool present = false;
  };
  struct Salt {
    std::string text;
    int32_t references = 0;
  };
  static size_t index(int32_t block) { return static_cast<size_t>(block); }
  size_t bucket(PrefixHash hash) const { return hash.low & (buckets_.size() - 1); }
  PrefixHash narrow(PrefixHash hash) const;
  bool matches(int32_t block, PrefixHash hash, int32_t parent, SaltId salt,
               std::span<const int32_t> tokens) const;

  int32_t block_tokens_;
  int32_t hash_bits_;
  int32_t size_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;   // block_tokens a block
  std::vector<int32_t> buckets_;  // first node; a power of two of them
  std::vector<Salt> salts_;
  std::vector<SaltId> unused_salts_;
  std::map<std::string, SaltId, std::less<>> salt_ids_;
};

}  // namespace pelton::kv
