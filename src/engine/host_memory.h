// Anonymous memory outside the arenas: tokenizer, tables, thread stacks, the program itself.
#pragma once

#include <cstddef>

#include "engine/model_files.h"

namespace pelton::engine {

struct EngineOptions;

// An upper estimate from headers alone; tests hold it against what a process really takes.
size_t host_bytes(const ModelFiles& files, const EngineOptions& options);

}  // namespace pelton::engine
