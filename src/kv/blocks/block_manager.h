// Pool, tables and prefix tree as one: the operations on a sequence's blocks that keep all three in
// step. Host accounting only; one caller.
//
// Invariant that eviction rests on: whoever holds a node's block also holds its parent's, and gives
// blocks back last first. So a child is never released later than its parent, and the least
// recently released cached block has no children.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kv/blocks/block_pool.h"
#include "kv/blocks/block_table.h"
#include "kv/blocks/prefix_tree.h"
#include "pelton/status.h"

namespace pelton::kv {

struct BlockConfig {
  int32_t num_blocks = 0;
  int32_t block_tokens = 32;
  bool enable_prefix_caching = true;
  int32_t hash_bits = 128;  // fewer only in tests
};

class BlockManager {
 public:
  explicit BlockManager(const BlockConfig& config);

  int32_t block_tokens() const { return config_.block_tokens; }
  int32_t blocks_for(int64_t tokens) const {
    return static_cast<int32_t>((tokens + config_.block_tokens - 1) / config_.block_tokens);
  }
  const BlockPool& pool() const { return pool_; }
  const PrefixTree& tree() const { return tree_; }

  // A table's salt lives from open() to close(); close() needs an empty table, opened or not.
  void open(BlockTable* table, std::string_view salt, int64_t max_tokens);
  void close(BlockTable* table);

  // Fills an empty table with the longest known prefix of `tokens`, at most `limit` tokens of them,
  // and holds its blocks. Returns how many tokens that covers.
  int32_t match(BlockTable* table, std::span<const int32_t> tokens, int32_t limit);

  // Appends blocks until the table covers `tokens`; the caller has made sure that they are
  // available.
  void grow(BlockTable* table, int64_t tokens);

  // Whether the block that holds position `position` may be written as it is (also when the table
  // does not reach so far). A block with several holders may not, and neither one that carries
  // known tokens on which other nodes rest.
  bool writable(const BlockTable& table, int64_t position) const;
  struct Copy {
    int32_t source = kNoBlock;
    int32_t target = kNoBlock;
  };
  // Makes the block of `position` the table's own. Gives the copy of content that this asks for
  // (source == kNoBlock: none). Needs one available block when !writable().
  Copy make_writable(BlockTable* table, int64_t position);

  // Makes an empty, closed `target` hold the first `tokens` tokens of `source`.
  void fork(const BlockTable& source, int64_t tokens, BlockTable* target);

  // Makes the first `computed` of `tokens` known, block by block. Where the tree already has the
  // same tokens in another block the table changes over to that one, so equal prefixes computed
  // side by side end up shared and the invariant above holds.
  void publish(BlockTable* table, std::span<const int32_t> tokens, int64_t computed);

  // Gives every block back, last first.
  void clear(BlockTable* table);
  // Whether clear() would make any block available.
  bool sole_holder(const BlockTable& table) const;

  // Pool and tree agree with each other; `tables` are all that exist.
  Status check_integrity(std::span<const BlockTable* const> tables) const;

 private:
  int32_t take();
  void extend_hashes(BlockTable* table, std::span<const int32_t> tokens, int32_t blocks) const;
  std::span<const int32_t> block_of(std::span<const int32_t> tokens, int32_t i) const;

  BlockConfig config_;
  BlockPool pool_;
  PrefixTree tree_;
};

}  // namespace pelton::kv
