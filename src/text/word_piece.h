// WordPiece (greedy longest match from the left of each word) and WordLevel (whole words).
#pragma once

#include <memory>
#include <string>

#include "text/model.h"
#include "text/vocabulary.h"

namespace pelton::text {

struct WordPieceOptions {
  int32_t unk_id = -1;
  std::string continuing_subword_prefix;
  int64_t max_input_chars_per_word = 100;  // longer words are unknown
};

// `vocabulary` outlives the model.
std::unique_ptr<Model> word_piece_model(const Vocabulary& vocabulary, WordPieceOptions options);
std::unique_ptr<Model> word_level_model(const Vocabulary& vocabulary, int32_t unk_id);

}  // namespace pelton::text
