// Byte-pair encoding. The lowest-ranked pair of neighbours merges first, the leftmost of equals
// (Sennrich et al., arXiv 1508.07909). Pairs come from a merge list, or, for SentencePiece
// vocabularies, from scores: any two neighbours whose joined text is a token may merge, best score
// first. Short pieces scan for the best pair, long ones keep a heap: O(n log n).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/model.h"
#include "text/vocabulary.h"

namespace pelton::text {

struct BpeOptions {
  bool byte_level = false;     // pieces are raw bytes; tokens are spelled in the byte alphabet
  bool byte_fallback = false;  // unknown characters become byte tokens
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool fuse_unk = false;       // neighbouring unknown characters make one unknown token
  int32_t unk_id = -1;
  std::string continuing_subword_prefix, end_of_word_suffix;
};

struct BpeMerge {
  std::string_view left, right;  // valid during the call
};

class BpeModel : public Model {
 public:
  // `vocabulary` is finished and outlives the model.
  static Result<std::unique_ptr<Model>> from_merges(const Vocabulary& vocabulary,
                                                    const std::vector<BpeMerge>& merges,
                                                    BpeOptions options);
  // One finite score an id; `mergeable[id]` tells which tokens a merge may produce.
  static Result<std::unique_ptr<Model>> from_scores(const Vocabulary& vocabulary,
                                                    const std::vector<double>& scores,
                                                    const std::vector<bool>& mergeable,
                                                    BpeOptions options);

  void encode(std::string_view piece, ModelScratch* scratch,
              std::vector<int32_t>* out) const override;

 private:
  using Symbol = ModelScratch::Symbol;
  struct Merge {
    uint32_t rank;
    int32_t id;  // -1: the two do not merge
  };

  BpeModel(const Vocabulary& vocabulary, BpeOptions options);
  Status prepare_bytes();
  void find_boundaries();
  bool may_cut(std::string_view piece, size_t pos) const;
  void encode_part(std::string_view piece, ModelScratch* scratch, std::vector<int32_t>* out) const;
  void encode_uncached(std::string_view piece, ModelScratch* scratch,
                       std::vector<int32_t>* out) const;
  void make_symbols(std::string_view piece, std::vector<Symbol>* symbols) const;
  bool push_fallback(std::string_view text, uint32_t begin, std::vector<Symbol>* symbols) const;
  Merge find_merge(std::string_view piece, const Symbol& left, const Symbol& right) const;
  void merge_by_scan(std::string_view piece, ModelScratch* scratch) const;
  void merge_by_heap(std::string_view piece, ModelScratch* scratch) const;
  void push_candidate(std::string_view piece, int32_t left, ModelScratch* scratch) const;
  void emit(std::string_view piece, const std::vector<Symbol>& symbols,
            std::vector<int32_t>* out) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  PairIndex merges_;                  // by merge list
  std::vector<uint32_t> score_rank_;  // by id, for scores; kNever where a merge may not end
  std::array<int32_t, 256> byte_ids_;
  StringIndex raw_index_;  // byte level with ignore_merges or scores: tokens as bytes
  std::vector<std::string> raw_pieces_;
  // Characters that some token holds right before a "▁"; a piece may be cut before "▁" after any
  // other character without changing its ids. Absent: pieces are never cut.
  std::optional<std::vector<uint32_t>> glued_;
};

}  // namespace pelton::text
