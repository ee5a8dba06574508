// The one Tokenizer: normalizer, pre-tokenizer, model, post-processor, decoder, with added tokens
// cut out around them. Loaders fill a PipelineParts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace pelton::text {

struct PipelineParts {
  std::unique_ptr<Vocabulary> vocabulary;  // the model's own tokens
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Model> model;
  DecodeSteps decoder;
  bool clean_up_spaces = false;
  std::vector<int32_t> prefix_ids, suffix_ids;  // what add_special_tokens puts around a text
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
  std::vector<int32_t> more_end_ids;
};

// Checks that all ids are inside the vocabulary and builds the search structures.
Result<std::shared_ptr<const Tokenizer>> make_pipeline(PipelineParts parts);

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeStream> decode_stream() const override;
  int32_t vocab_size() const override { return vocab_size_; }
  std::string_view piece(int32_t id) const override;
  std::optional<int32_t> find(std::string_view piece) const override;
  bool is_special(int32_t id) const override;
  std::optional<int32_t> bos_id() const override { return parts_.bos_id; }
  std::optional<int32_t> eos_id() const override { return parts_.eos_id; }
  std::optional<int32_t> unk_id() const override { return parts_.unk_id; }
  std::optional<int32_t> pad_id() const override { return parts_.pad_id; }
  const std::vector<int32_t>& end_ids() const override { return end_ids_; }
  bool adds_bos() const override;

  // As encode, and adds the elementary steps done to *steps: a test aid for linearity.
  std::vector<int32_t> encode_counted(std::string_view text, const EncodeOptions& options,
                                      uint64_t* steps) const;

 private:
  void encode_plain(const Piece& raw, bool match_special, ModelScratch* scratch,
                    std::vector<int32_t>* out) const;
  void collect_end_ids();

  PipelineParts parts_;
  std::unique_ptr<AddedTokenFinder> raw_finder_, normalized_finder_;  // null when without tokens
  // For texts with plain ranges, which normalization would lose: finds special tokens of both kinds
  // in the raw text. Null when raw_finder_ does so already.
  std::unique_ptr<AddedTokenFinder> ranges_finder_;
  std::unordered_map<int32_t, size_t> added_by_id_;
  std::unordered_map<std::string_view, int32_t> added_by_content_;
  std::vector<int32_t> end_ids_;
  int32_t vocab_size_ = 0;
};

}  // namespace pelton::text
