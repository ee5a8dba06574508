// What tokenizer_config.json adds to a tokenizer: which tokens begin and end a text, clean-up.
#pragma once

#include "text/pipeline.h"

namespace pelton::text {

// `config` is the document or empty. Added tokens that only it names are added to `parts`. With
// `own_prefix` its add_bos_token and add_eos_token decide what surrounds a text; tokenizer.json
// says so itself.
Status apply_tokenizer_config(std::string_view config, bool own_prefix, PipelineParts* parts);

}  // namespace pelton::text
