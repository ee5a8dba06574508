#include "base/utf8.h"
#include "text/decoder.h"
#include "text/tokenizer.h"

namespace pelton::text {

Tokenizer::~Tokenizer() = default;

std::unique_ptr<DecodeStream> Tokenizer::decode_stream() const { return nullptr; }

StreamingDetokenizer::StreamingDetokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                                           bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      stream_(tokenizer_->decode_stream()) {}

StreamingDetokenizer::~StreamingDetokenizer() = default;
StreamingDetokenizer::StreamingDetokenizer(StreamingDetokenizer&&) noexcept = default;
StreamingDetokenizer& StreamingDetokenizer::operator=(StreamingDetokenizer&&) noexcept = default;

std::string StreamingDetokenizer::push(int32_t id) {
  std::string out;
  if (!stream_) {
    // A tokenizer that cannot stream: all of it at the end.
    ids_.push_back(id);
    return out;
  }
  const std::string_view piece = tokenizer_->piece(id);
  const bool known = !piece.empty();
  if (known && !(skip_special_tokens_ && tokenizer_->is_special(id))) stream_->push(piece, &out);
  return out;
}

std::string StreamingDetokenizer::finish() {
  std::string out;
  if (!stream_) {
    out = tokenizer_->decode(ids_, skip_special_tokens_);
    ids_.clear();
    return out;
  }
  stream_->finish(&out);
  stream_ = tokenizer_->decode_stream();
  return out;
}

}  // namespace pelton::text
