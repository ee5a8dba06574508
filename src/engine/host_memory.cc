#include "engine/host_memory.h"

#include "engine/engine.h"
#include "sampling/scratch.h"

namespace pelton::engine {
namespace {

// Measured on byte-level and SentencePiece vocabularies of 8,192 to 262,144 entries; rounded up.
constexpr size_t kProgram = 1280u << 10;  // code's writable pages, C++ runtime, allocator slack
constexpr size_t kPerThread = 64u << 10;  // touched part of a worker's stack
constexpr size_t kPerEntryWithMerges =
    265;  // piece, its indexes, one merge, GGUF's copies of their text
constexpr size_t kPerEntryWithScores = 185;  // piece, its indexes, score and type

}  // namespace

size_t host_bytes(const ModelFiles& files, const EngineOptions& options) {
  const auto vocabulary = static_cast<size_t>(files.config().vocab_size);
  const bool scored =
      files.gguf() != nullptr && files.gguf()->get_floats("tokenizer.ggml.scores") != nullptr;
  const auto sampler = static_cast<size_t>(
      sampling::SamplerScratch::bytes(files.config().vocab_size, options.max_model_len));
  return kProgram + vocabulary * (scored ? kPerEntryWithScores : kPerEntryWithMerges) +
         static_cast<size_t>(options.threads) * (kPerThread + sampler);
}

}  // namespace pelton::engine
