// The components of a tokenizer.json document, by their "type". A type or option that is not known
// is an error naming it; nothing falls back to a default silently.
#pragma once

#include "base/json.h"
#include "text/pipeline.h"

namespace pelton::text {

Result<std::unique_ptr<Normalizer>> read_normalizer(const JsonValue& value);
// `raw_bytes`: the model takes bytes, so a ByteLevel step at the end must not map them.
Result<std::unique_ptr<PreTokenizer>> read_pre_tokenizer(const JsonValue& value, bool raw_bytes);
// Whether the last step is ByteLevel and no other step is.
bool ends_in_byte_level(const JsonValue& pre_tokenizer);
Status read_decoder(const JsonValue& value, DecodeSteps* steps);
// Fills prefix_ids and suffix_ids.
Status read_post_processor(const JsonValue& value, PipelineParts* parts);
// Fills vocabulary (with control tokens marked from `added`) and model.
Status read_model(const JsonValue& value, bool byte_level, PipelineParts* parts);

}  // namespace pelton::text
