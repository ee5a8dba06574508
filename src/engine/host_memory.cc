#include "engine/host_memory.h"

#include "engine/engine.h"
#include "sampling/scratch.h"

namespace pelton::engine {
namespace {

// Measured on vocabularies of 8,192 to 262,144 entries, rounded up.
constexpr size_t kProgram = 1u << 20;        // code's writable pages, C++ runtime, allocator slack
constexpr size_t kPerThread = 64u << 10;     // touched part of a worker's stack
constexpr size_t kPerEntryOfFolder = 150;    // the tokenizer's pieces, indexes and merges
constexpr size_t kPerEntryWithMerges = 190;  // the same beside a GGUF file's own lists
constexpr size_t kPerEntryWithScores = 134;

// Heap bytes of a string beyond the object itself.
size_t heap_bytes(const std::string& text) {
  constexpr size_t kInline = 15;
  return text.size() <= kInline ? 0 : (text.size() + 1 + 8 + 15) / 16 * 16;
}

// What the reader keeps of a GGUF file's vocabulary.
size_t list_bytes(const weights::GgufFile& file) {
  size_t bytes = 0;
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    const auto* strings = file.get_strings(key);
    if (strings == nullptr) continue;
    bytes += strings->size() * sizeof(std::string);
    for (const std::string& s : *strings) bytes += heap_bytes(s);
  }
  if (const auto* scores = file.get_floats("tokenizer.ggml.scores"))
    bytes += scores->size() * sizeof(double);
  if (const auto* types = file.get_ints("tokenizer.ggml.token_type"))
    bytes += types->size() * sizeof(int64_t);
  return bytes;
}

size_t tokenizer_bytes(const ModelFiles& files) {
  const auto vocabulary = static_cast<size_t>(files.config().vocab_size);
  if (files.synthetic()) return 0;
  const weights::GgufFile* gguf = files.gguf();
  if (gguf == nullptr) return vocabulary * kPerEntryOfFolder;
  const bool scored = gguf->get_floats("tokenizer.ggml.scores") != nullptr;
  return vocabulary * (scored ? kPerEntryWithScores : kPerEntryWithMerges) + list_bytes(*gguf);
}

}  // namespace

size_t host_bytes(const ModelFiles& files, const EngineOptions& options) {
  const auto sampler = static_cast<size_t>(
      sampling::SamplerScratch::bytes(files.config().vocab_size, options.max_model_len));
  return kProgram + tokenizer_bytes(files) +
         static_cast<size_t>(options.threads) * (kPerThread + sampler);
}

}  // namespace pelton::engine
