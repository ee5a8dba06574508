// Unigram language model (Kudo, arXiv 1804.10959): the segmentation with the highest sum of token
// scores, by one left-to-right pass over a trie.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "text/hash_index.h"
#include "text/model.h"
#include "text/vocabulary.h"

namespace pelton::text {

struct UnigramOptions {
  int32_t unk_id = -1;  // for characters that are no token; needed
  bool byte_fallback = false;
};

class UnigramModel : public Model {
 public:
  // `vocabulary` is finished and outlives the model. One finite score an id; usable[id] tells which
  // tokens text may become.
  static Result<std::unique_ptr<Model>> create(const Vocabulary& vocabulary,
                                               const std::vector<double>& scores,
                                               const std::vector<bool>& usable,
                                               const UnigramOptions& options);
  void encode(std::string_view piece, ModelScratch* scratch,
              std::vector<int32_t>* out) const override;

 private:
  UnigramModel(const Vocabulary& vocabulary, const UnigramOptions& options)
      : vocabulary_(vocabulary), options_(options) {}
  void insert(std::string_view piece, int32_t id);
  void relax(std::string_view piece, size_t begin, ModelScratch* scratch) const;
  void emit_unknown(std::string_view text, std::vector<int32_t>* out) const;

  const Vocabulary& vocabulary_;
  UnigramOptions options_;
  std::vector<double> scores_;
  double unknown_score_ = 0.0;
  std::vector<int32_t> node_ids_{-1};  // token that ends at a trie node, -1 for none
  PairIndex edges_;                    // (node, byte) -> node
  std::array<int32_t, 256> roots_{};   // by first byte, 0 for none
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace pelton::text
