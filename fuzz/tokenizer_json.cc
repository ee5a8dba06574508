// A hostile tokenizer.json (up to the first zero byte) and its tokenizer_config.json: an error or a
// tokenizer whose ids lie inside its vocabulary and whose stream equals its whole decode.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pelton::text::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), size);
  const std::string_view config = cut < size ? input.substr(cut + 1) : std::string_view();
  const auto tokenizer = Tokenizer::from_json(input.substr(0, cut), config);
  if (!tokenizer.ok()) return 0;
  const std::string_view text =
      "a  bc it's 123\n\xE2\x96\x81\xC3\xA9\xF0\x9F\x98\x80<s><|im_end|> x";
  const auto ids = (*tokenizer)->encode(text, {true, true, {}});
  pelton::text::StreamingDetokenizer stream(*tokenizer, true);
  std::string streamed;
  for (const int32_t id : ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    streamed += stream.push(id);
  }
  if (streamed + stream.finish() != (*tokenizer)->decode(ids, true)) std::abort();
  return 0;
}
