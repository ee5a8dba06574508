// Text to token ids and back, exactly as the reference libraries do it. Immutable after loading and
// safe to share between threads. Time and memory are linear in the input, whatever the input;
// nothing recurses on its length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::text {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // what the model's own settings put around a text (BOS, EOS)
  // Whether control-token text inside the input becomes control tokens. False for what users type;
  // true for the output of a chat template's own markup. Added tokens that are not special always
  // match.
  bool parse_special = false;
  // With parse_special: ascending, disjoint parts of the input (what users typed, inside a rendered
  // template) in which special tokens are not looked for. Everything else is encoded as if they
  // were not given, so that ordinary tokens may span their borders.
  std::span<const TextRange> plain_ranges = {};
};

// Vocabulary and settings as a GGUF file's metadata holds them (tokenizer.ggml.*).
struct GgufVocabulary {
  std::string model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), "t5" (unigram)
  std::string pre;    // pre-tokenizer name: "smollm", "qwen2", "llama-bpe", ...; may be empty
  std::vector<std::string> tokens;
  std::vector<double> scores;
  std::vector<int64_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;
  std::optional<int64_t> bos_id, eos_id, eot_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  std::string precompiled_charsmap;  // SentencePiece's character map; may be empty
};

class DecodeStream;

class Tokenizer {
 public:
  virtual ~Tokenizer();

  // A Hugging Face folder: tokenizer.json, else tokenizer.model (SentencePiece or tiktoken form);
  // settings from tokenizer_config.json.
  static Result<std::shared_ptr<const Tokenizer>> from_folder(const std::filesystem::path& folder);
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(GgufVocabulary vocabulary);
  // One tokenizer.json document, for fuzzing and tests. `config` is tokenizer_config.json or empty.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view document,
                                                            std::string_view config);

  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;
  // The reference's decode(ids, skip_special_tokens): byte pieces joined, invalid UTF-8 replaced by
  // U+FFFD. Ids outside the vocabulary give nothing.
  virtual std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const = 0;

  virtual int32_t vocab_size() const = 0;  // largest id + 1, added tokens included
  // The token as the vocabulary spells it ("Ġhello", "▁hello", "<0x0A>"); empty outside the
  // vocabulary.
  virtual std::string_view piece(int32_t id) const = 0;
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  // Of names alone: what chat templates call unk_token and pad_token.
  virtual std::optional<int32_t> unk_id() const { return std::nullopt; }
  virtual std::optional<int32_t> pad_id() const { return std::nullopt; }
  // Every id that ends a generation by the tokenizer's own word (EOS, end of turn).
  virtual const std::vector<int32_t>& end_ids() const = 0;
  virtual bool adds_bos() const = 0;

  // State of one streaming decode; null when this tokenizer cannot stream (a test's fake).
  virtual std::unique_ptr<DecodeStream> decode_stream() const;
};

// Text of a growing id sequence, as soon as no later id can change it: the concatenation of all
// push() results and finish() equals decode() of all ids. Bytes of an unfinished character wait; at
// the end they become U+FFFD. Byte-fallback tokens wait for the end of their run, since the
// reference decodes a run as a whole.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  ~StreamingDetokenizer();
  StreamingDetokenizer(StreamingDetokenizer&&) noexcept;
  StreamingDetokenizer& operator=(StreamingDetokenizer&&) noexcept;

  std::string push(int32_t id);
  // The rest; afterwards a new sequence may begin.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<DecodeStream> stream_;
  std::vector<int32_t> ids_;  // only without a stream
};

}  // namespace pelton::text
