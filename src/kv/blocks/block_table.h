// The blocks of one sequence, in the order of its tokens, and how far the prefix tree knows them. A
// table goes with one list of tokens, which may grow but does not change.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/blocks/prefix_tree.h"

namespace pelton::kv {

struct BlockTable {
  std::vector<int32_t> blocks;     // block i holds tokens i * block_tokens onwards
  std::vector<PrefixHash> hashes;  // chain hash of each full block of tokens, as far as needed yet
  SaltId salt = kNoSalt;           // held from open() to close()
  int32_t known = 0;               // leading blocks that are nodes of the prefix tree
  bool sealed = false;             // the tree refused a block: none behind it can be a node

  int32_t size() const { return static_cast<int32_t>(blocks.size()); }
};

}  // namespace pelton::kv
