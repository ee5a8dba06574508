// The step from a pre-token to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/piece_cache.h"

namespace pelton::text {

// Working memory of one encode() call, shared by all its pieces.
struct ModelScratch {
  struct Symbol {
    int32_t id;      // -1: not in the vocabulary
    uint32_t begin;  // bytes, in the piece
    uint32_t length;
    int32_t prev, next;  // indices, -1 at the ends
  };
  struct Candidate {
    uint32_t rank;
    uint32_t left;    // symbol index
    uint32_t length;  // bytes of both symbols when the candidate was made
    int32_t id;       // of the merged symbol
  };
  struct PathNode {
    double score;
    int32_t id;
    int32_t begin;  // where the piece that ends here starts, -1 for none
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<PathNode> path;
  PieceCache cache;
  // Elementary steps done so far: symbols made, candidates taken, edges tried. Tests check that it
  // grows in proportion to the input (times its logarithm for the heap).
  uint64_t steps = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `piece`, which is valid UTF-8 and not empty.
  virtual void encode(std::string_view piece, ModelScratch* scratch,
                      std::vector<int32_t>* out) const = 0;
};

}  // namespace pelton::text
