// Any bytes through tokenizers of each kind: ids lie inside the vocabulary, byte-level ones give
// the text back, streaming equals whole decoding, control tokens appear only when asked for.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/utf8.h"
#include "tests/support/source_root.h"
#include "text/tokenizer.h"

namespace {

using TokenizerPtr = std::shared_ptr<const pelton::text::Tokenizer>;

struct Target {
  TokenizerPtr tokenizer;
  bool round_trip;
};

std::vector<Target> load() {
  std::vector<Target> out;
  for (const auto& [name, round_trip] :
       {std::pair("bytes_o200k_regex", true), std::pair("bytes_deepseek_regex", true),
        std::pair("bytes_other_regex", true), std::pair("bytes_added", false),
        std::pair("sentencepiece_bpe", false), std::pair("unigram_precompiled", false),
        std::pair("word_piece", false), std::pair("normalizer_strip", false)}) {
    std::ifstream in(pelton::source_root().string() + "/tests/golden/text/tiny/" + name + ".json");
    std::ostringstream text;
    text << in.rdbuf();
    auto tokenizer = pelton::text::Tokenizer::from_json(text.str(), "");
    if (!tokenizer.ok()) std::abort();
    out.push_back({*tokenizer, round_trip});
  }
  return out;
}

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Target> targets = load();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& [tokenizer, round_trip] : targets) {
    for (const bool special : {false, true}) {
      const auto ids = tokenizer->encode(text, {special, special, {}});
      pelton::text::StreamingDetokenizer stream(tokenizer, false);
      std::string streamed;
      for (const int32_t id : ids) {
        check(id >= 0 && id < tokenizer->vocab_size());
        streamed += stream.push(id);
      }
      streamed += stream.finish();
      check(streamed == tokenizer->decode(ids, false));
      check(pelton::is_valid_utf8(streamed));
      if (round_trip) check(streamed == pelton::replace_invalid_utf8(text));
    }
  }
  return 0;
}
