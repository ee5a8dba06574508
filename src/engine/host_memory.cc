#include "engine/host_memory.h"

#include "engine/engine.h"
#include "sampling/scratch.h"

namespace pelton::engine {
namespace {

constexpr size_t kProgram = 6u << 20;     // code's writable pages, C++ runtime, allocator slack
constexpr size_t kPerThread = 64u << 10;  // touched part of a worker's stack
constexpr size_t kPerVocabularyEntry =
    160;  // piece, its two index entries, GGUF's copy of the string
constexpr size_t kPerMerge = 48;

}  // namespace

size_t host_bytes(const ModelFiles& files, const EngineOptions& options) {
  const auto vocabulary = static_cast<size_t>(files.config().vocab_size);
  return kProgram + kPerThread * static_cast<size_t>(options.threads) +
         vocabulary * (kPerVocabularyEntry + kPerMerge) + vocabulary * sizeof(float);
}

}  // namespace pelton::engine
