#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "kv/blocks/block_manager.h"

namespace pelton::kv {
namespace {

constexpr int32_t kRows = 4;

std::vector<int32_t> counting(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A manager and all its tables.
struct Tables {
  explicit Tables(const BlockConfig& config) : blocks(config) {}
  BlockTable& add(const char* salt = "") {
    BlockTable& table = tables.emplace_back();
    blocks.open(&table, salt, 100);
    return table;
  }
  // As a sequence that computes all of `tokens`.
  void compute(BlockTable* table, const std::vector<int32_t>& tokens) {
    blocks.grow(table, static_cast<int64_t>(tokens.size()));
    blocks.publish(table, tokens, static_cast<int64_t>(tokens.size()));
  }
  void verify() {
    std::vector<const BlockTable*> all;
    for (const BlockTable& table : tables) all.push_back(&table);
    const Status s = blocks.check_integrity(all);
    EXPECT_TRUE(s.ok()) << s.message();
  }

  BlockManager blocks;
  std::deque<BlockTable> tables;
};

TEST(BlockPool, GivesEachBlockOnce) {
  BlockPool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), kNoBlock);
  pool.share(1);
  pool.give_back(1);
  EXPECT_EQ(pool.available(), 0);
  pool.give_back(1);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_THROW(pool.give_back(1), InternalError);
  EXPECT_THROW(pool.share(1), InternalError);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockPool, ReclaimsTheLeastRecentlyReleasedFirst) {
  BlockPool pool(3);
  for (int32_t i = 0; i < 3; ++i) pool.set_retained(pool.take(), true);
  for (int32_t block : {1, 2, 0}) pool.give_back(block);
  pool.share(1);
  pool.give_back(1);  // used again: now the most recent
  EXPECT_EQ(pool.cached(), 3);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockManager, MatchesWholeBlocksUpToTheLimit) {
  Tables t({16, kRows});
  BlockTable& first = t.add();
  BlockTable& second = t.add();
  const std::vector<int32_t> tokens = counting(0, 14);
  t.compute(&first, tokens);
  EXPECT_EQ(t.blocks.match(&second, tokens, 13), 12);
  EXPECT_TRUE(std::equal(second.blocks.begin(), second.blocks.end(), first.blocks.begin()));
  t.verify();
  t.blocks.clear(&second);
  EXPECT_EQ(t.blocks.match(&second, tokens, 11), 8);
  t.blocks.clear(&second);
  std::vector<int32_t> other = tokens;
  other[5] = 99;
  EXPECT_EQ(t.blocks.match(&t.add(), other, 14), 4);
  t.verify();
}

TEST(BlockManager, EqualTokensBehindDifferentParentsAreDifferent) {
  for (int32_t bits : {128, 64, 0}) {
    Tables t({16, kRows, true, bits});
    BlockTable& first = t.add();
    BlockTable& second = t.add();
    BlockTable& third = t.add();
    BlockTable& fourth = t.add();
    t.compute(&first, {1, 1, 1, 1, 7, 7, 7, 7});
    EXPECT_EQ(t.blocks.match(&second, std::vector<int32_t>{2, 2, 2, 2, 7, 7, 7, 7}, 8), 0) << bits;
    EXPECT_EQ(t.blocks.match(&third, std::vector<int32_t>{7, 7, 7, 7}, 4), 0) << bits;
    EXPECT_EQ(t.blocks.match(&fourth, std::vector<int32_t>{1, 1, 1, 1, 7, 7, 7, 7}, 8), 8) << bits;
    t.verify();
  }
}

TEST(BlockManager, SaltsDoNotMeet) {
  for (int32_t bits : {128, 0}) {
    Tables t({16, kRows, true, bits});
    BlockTable& a = t.add("tenant a");
    BlockTable& b = t.add("tenant b");
    BlockTable& again = t.add("tenant a");
    t.compute(&a, counting(0, 8));
    EXPECT_EQ(t.blocks.match(&b, counting(0, 8), 8), 0);
    EXPECT_EQ(t.blocks.match(&again, counting(0, 8), 8), 8);
    t.verify();
  }
}

TEST(BlockManager, EqualBlocksComputedSideBySideBecomeOne) {
  Tables t({16, kRows});
  BlockTable& first = t.add();
  BlockTable& second = t.add();
  t.blocks.grow(&first, 8);
  t.blocks.grow(&second, 8);
  EXPECT_EQ(t.blocks.pool().available(), 12);
  t.blocks.publish(&first, counting(0, 8), 8);
  t.blocks.publish(&second, counting(0, 8), 8);
  EXPECT_EQ(t.blocks.pool().available(), 14);
  EXPECT_EQ(first.blocks, second.blocks);
  t.verify();
}

TEST(BlockManager, EvictsLeavesBeforeTheirParents) {
  Tables t({4, kRows});
  BlockTable& first = t.add();
  BlockTable& second = t.add();
  t.compute(&first, counting(0, 12));
  t.blocks.clear(&first);
  EXPECT_EQ(t.blocks.pool().cached(), 3);
  t.blocks.grow(&second, 8);  // the free block and the last of the cached prefix
  t.verify();
  t.blocks.clear(&second);
  EXPECT_EQ(t.blocks.match(&second, counting(0, 12), 12), 8);
  t.verify();
}

TEST(BlockManager, CopiesOnlyWhatOthersHold) {
  Tables t({8, kRows});
  BlockTable& first = t.add();
  BlockTable& fork = t.add();
  t.compute(&first, counting(0, 6));
  t.blocks.fork(first, 6, &fork);
  EXPECT_EQ(t.blocks.pool().available(), 6);
  EXPECT_FALSE(t.blocks.writable(first, 6));
  EXPECT_TRUE(t.blocks.writable(first, 8));
  const int32_t shared = first.blocks[1];
  const auto copy = t.blocks.make_writable(&first, 6);
  EXPECT_EQ(copy.source, shared);
  EXPECT_EQ(copy.target, first.blocks[1]);
  EXPECT_EQ(t.blocks.make_writable(&fork, 6).source, kNoBlock);  // the last holder keeps it
  EXPECT_EQ(fork.blocks[1], shared);
  t.verify();
}

TEST(BlockManager, WritingIntoAKnownBlockMakesItUnknown) {
  Tables t({8, kRows});
  BlockTable& first = t.add();
  BlockTable& fork = t.add();
  t.compute(&first, counting(0, 8));
  t.blocks.fork(first, 7, &fork);
  t.blocks.clear(&first);
  EXPECT_EQ(t.blocks.make_writable(&fork, 7).source, kNoBlock);
  EXPECT_EQ(t.blocks.match(&first, counting(0, 8), 8), 4);
  t.verify();
}

TEST(PrefixTree, BoundsTheCostOfCollisions) {
  Tables t({200, kRows, true, 0});
  for (int32_t i = 0; i < 100; ++i) t.compute(&t.add(), counting(i * 100, 8));
  EXPECT_EQ(t.blocks.tree().size(), 32);
  t.verify();
}

TEST(PrefixTree, ForgetsSaltsThatNobodyUses) {
  PrefixTree tree(4, kRows);
  for (int i = 0; i < 1000; ++i) {
    const SaltId salt = tree.acquire_salt("salt " + std::to_string(i));
    EXPECT_EQ(salt, 0);
    tree.release_salt(salt);
  }
}

}  // namespace
}  // namespace pelton::kv
