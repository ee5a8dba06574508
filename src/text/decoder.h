// Tokens back to text, token by token: the whole text and a stream take the same road, so they are
// equal by construction.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/matcher.h"
#include "text/vocabulary.h"

namespace pelton::text {

using TextSink = FunctionRef<void(std::string_view)>;

// State of one step while tokens pass through it.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(std::string_view token, TextSink sink) = 0;
  virtual void finish(TextSink) {}
};

// Describes a step; immutable, shared by all streams.
class DecodeStepFactory {
 public:
  virtual ~DecodeStepFactory() = default;
  // `fused`: the tokens of this step are parts of one single token.
  virtual std::unique_ptr<DecodeStep> make(bool fused) const = 0;
  // Whether what comes out are parts of one single token.
  virtual bool fuses() const { return false; }
};

using DecodeSteps = std::vector<std::unique_ptr<DecodeStepFactory>>;

std::unique_ptr<DecodeStepFactory> byte_level_decoder();
std::unique_ptr<DecodeStepFactory> byte_fallback_decoder();
std::unique_ptr<DecodeStepFactory> fuse_decoder();
std::unique_ptr<DecodeStepFactory> replace_decoder(std::shared_ptr<const Matcher> pattern,
                                                   std::string content);
std::unique_ptr<DecodeStepFactory> strip_decoder(std::string content, size_t start, size_t stop);
std::unique_ptr<DecodeStepFactory> metaspace_decoder(std::string replacement, bool drop_first);
std::unique_ptr<DecodeStepFactory> word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<DecodeStepFactory> bpe_decoder(std::string suffix);
// What happens without any decoder: tokens joined by spaces.
std::unique_ptr<DecodeStepFactory> join_decoder();

// The texts of transformers' clean_up_tokenization_spaces, for a whole text.
std::string clean_up_spaces(std::string text);

// One pass over a token sequence.
class DecodeStream {
 public:
  DecodeStream(const DecodeSteps& steps, bool clean_up);
  void push(std::string_view token, std::string* out);
  void finish(std::string* out);

 private:
  void run(size_t step, std::string_view token, std::string* out);
  void append(std::string_view text, std::string* out);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  bool clean_up_;
  std::string held_;  // text that a clean-up rule may still change
};

}  // namespace pelton::text
