#include "kv/blocks/block_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pelton::kv {
namespace {
size_t index(int64_t i) { return static_cast<size_t>(i); }
}  // namespace

BlockManager::BlockManager(const BlockConfig& config)
    : config_(config),
      pool_(config.num_blocks),
      tree_(config.num_blocks, config.block_tokens, config.hash_bits) {
  check(config.num_blocks > 0 && config.block_tokens > 0, "a pool has blocks and blocks have rows");
}

void BlockManager::open(BlockTable* table, std::string_view salt, int64_t max_tokens) {
  table->blocks.reserve(index(blocks_for(max_tokens)));
  if (config_.enable_prefix_caching) table->hashes.reserve(index(blocks_for(max_tokens)));
  table->salt = tree_.acquire_salt(salt);
}

void BlockManager::close(BlockTable* table) {
  check(table->blocks.empty(), "a table is cleared before it is closed");
  if (table->salt != kNoSalt) tree_.release_salt(std::exchange(table->salt, kNoSalt));
}

std::span<const int32_t> BlockManager::block_of(std::span<const int32_t> tokens, int32_t i) const {
  return tokens.subspan(index(int64_t{i} * config_.block_tokens), index(config_.block_tokens));
}

void BlockManager::extend_hashes(BlockTable* table, std::span<const int32_t> tokens,
                                 int32_t blocks) const {
  while (static_cast<int32_t>(table->hashes.size()) < blocks) {
    const auto i = static_cast<int32_t>(table->hashes.size());
    const PrefixHash parent = i == 0 ? tree_.root_hash(table->salt) : table->hashes.back();
    table->hashes.push_back(tree_.extend(parent, block_of(tokens, i)));
  }
}

int32_t BlockManager::match(BlockTable* table, std::span<const int32_t> tokens, int32_t limit) {
  check(table->blocks.empty(), "only an empty table is matched");
  if (!config_.enable_prefix_caching) return 0;
  const auto length = std::min<int64_t>(limit, static_cast<int64_t>(tokens.size()));
  const auto full = static_cast<int32_t>(std::max<int64_t>(length, 0) / config_.block_tokens);
  int32_t parent = kNoBlock;
  for (int32_t i = 0; i < full; ++i) {
    extend_hashes(table, tokens, i + 1);
    parent = tree_.find(table->hashes[index(i)], parent, table->salt, block_of(tokens, i));
    if (parent == kNoBlock) break;
    pool_.share(parent);
    table->blocks.push_back(parent);
  }
  table->known = table->size();
  return table->size() * config_.block_tokens;
}

int32_t BlockManager::take() {
  const int32_t block = pool_.take();
  check(block != kNoBlock, "blocks are counted before they are taken");
  if (pool_.retained(block)) {
    tree_.erase(block);
    pool_.set_retained(block, false);
  }
  return block;
}

void BlockManager::grow(BlockTable* table, int64_t tokens) {
  const int32_t wanted = blocks_for(tokens);
  while (table->size() < wanted) table->blocks.push_back(take());
}

bool BlockManager::writable(const BlockTable& table, int64_t position) const {
  const int64_t i = position / config_.block_tokens;
  if (i >= table.size()) return true;
  const int32_t block = table.blocks[index(i)];
  return pool_.references(block) == 1 && (!pool_.retained(block) || tree_.children(block) == 0);
}

BlockManager::Copy BlockManager::make_writable(BlockTable* table, int64_t position) {
  const int64_t i = position / config_.block_tokens;
  if (i >= table->size()) return {};
  const int32_t block = table->blocks[index(i)];
  // What is written from here on may differ from what the tree and the hashes remember.
  table->known = static_cast<int32_t>(std::min<int64_t>(table->known, i));
  if (writable(*table, position)) {
    if (pool_.retained(block)) {
      tree_.erase(block);
      pool_.set_retained(block, false);
    }
    return {};
  }
  const int32_t target = take();
  table->blocks[index(i)] = target;
  pool_.give_back(block);
  return {block, target};
}

void BlockManager::fork(const BlockTable& source, int64_t tokens, BlockTable* target) {
  check(target->blocks.empty(), "a fork fills an empty table");
  const int32_t count = blocks_for(tokens);
  const auto full = static_cast<int32_t>(tokens / config_.block_tokens);
  check(count <= source.size(), "a fork covers tokens that its source holds");
  for (int32_t i = 0; i < count; ++i) {
    pool_.share(source.blocks[index(i)]);
    target->blocks.push_back(source.blocks[index(i)]);
  }
  const auto hashes = std::min(source.hashes.size(), index(full));
  target->hashes.assign(source.hashes.begin(),
                        source.hashes.begin() + static_cast<ptrdiff_t>(hashes));
  target->known = std::min(source.known, full);
  target->sealed = source.sealed && full > source.known;
}

void BlockManager::publish(BlockTable* table, std::span<const int32_t> tokens, int64_t computed) {
  if (!config_.enable_prefix_caching) return;
  const auto full = static_cast<int32_t>(computed / config_.block_tokens);
  while (table->known < full && !table->sealed) {
    const int32_t i = table->known;
    extend_hashes(table, tokens, i + 1);
    const PrefixHash hash = table->hashes[index(i)];
    const int32_t parent = i == 0 ? kNoBlock : table->blocks[index(i - 1)];
    const std::span<const int32_t> own = block_of(tokens, i);
    int32_t& block = table->blocks[index(i)];
    const int32_t twin = tree_.find(hash, parent, table->salt, own);
    if (twin == kNoBlock) {
      // A shared block whose node lies elsewhere in the tree cannot become a second node.
      if (tree_.contains(block) || !tree_.insert(block, hash, parent, table->salt, own)) {
        table->sealed = true;
        return;
      }
      pool_.set_retained(block, true);
    } else if (twin != block) {
      pool_.share(twin);
      pool_.give_back(block);
      block = twin;
    }
    ++table->known;
  }
}

void BlockManager::clear(BlockTable* table) {
  while (!table->blocks.empty()) {
    pool_.give_back(table->blocks.back());
    table->blocks.pop_back();
  }
  table->known = 0;
  table->sealed = false;
}

bool BlockManager::sole_holder(const BlockTable& table) const {
  // The last blocks are the least shared.
  return std::any_of(table.blocks.rbegin(), table.blocks.rend(),
                     [&](int32_t block) { return pool_.references(block) == 1; });
}

Status BlockManager::check_integrity(std::span<const BlockTable* const> tables) const {
  if (Status s = pool_.check_integrity(); !s.ok()) return s;
  if (Status s = tree_.check_integrity(); !s.ok()) return s;
  std::vector<int32_t> counted(index(pool_.size()));
  for (const BlockTable* table : tables) {
    for (int32_t i = 0; i < table->size(); ++i) {
      const int32_t block = table->blocks[index(i)];
      if (block < 0 || block >= pool_.size()) {
        return internal_error(fmt::format("a table names block {}", block));
      }
      ++counted[index(block)];
      if (i >= table->known) continue;
      const int32_t parent = i == 0 ? kNoBlock : table->blocks[index(i - 1)];
      if (!tree_.contains(block) || tree_.parent(block) != parent) {
        return internal_error(fmt::format("known block {} of a table is no such node", block));
      }
    }
  }
  for (int32_t block = 0; block < pool_.size(); ++block) {
    if (counted[index(block)] != pool_.references(block)) {
      return internal_error(fmt::format("block {}: {} references, {} holders", block,
                                        pool_.references(block), counted[index(block)]));
    }
    if (tree_.contains(block) != pool_.retained(block)) {
      return internal_error(fmt::format("block {}: node {}, retained {}", block,
                                        tree_.contains(block), pool_.retained(block)));
    }
    const int32_t parent = tree_.contains(block) ? tree_.parent(block) : kNoBlock;
    if (parent != kNoBlock && pool_.references(block) > 0 && pool_.references(parent) == 0) {
      return internal_error(fmt::format("block {} is held, its parent {} is not", block, parent));
    }
  }
  return {};
}

}  // namespace pelton::kv
