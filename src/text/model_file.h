// Tokenizer files other than tokenizer.json: SentencePiece models and tiktoken rank lists.
#pragma once

#include "text/pipeline.h"
#include "text/tokenizer.h"

namespace pelton::text {

// True for lines of base64 and a rank.
bool looks_like_tiktoken(std::string_view content);
// `config` is tokenizer_config.json or empty. The pattern and the special tokens of a rank list
// follow from its size; a size that no known family has is an error.
Result<std::shared_ptr<const Tokenizer>> from_tiktoken(std::string_view content,
                                                       std::string_view config);
Result<std::shared_ptr<const Tokenizer>> from_sentencepiece(std::string_view content,
                                                            std::string_view config);
// The pipeline of a SentencePiece vocabulary. Unlike GGUF's reading of it, the space before a text
// is added once, at its start.
Result<PipelineParts> parts_from_sentencepiece(GgufVocabulary vocabulary);

}  // namespace pelton::text
