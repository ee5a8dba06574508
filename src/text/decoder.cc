#include "text/decoder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/utf8.h"
#include "text/unicode.h"

namespace pelton::text {
namespace {

class ByteLevelStep : public DecodeStep {
 public:
  void push(std::string_view token, TextSink sink) override {
    if (auto bytes = alphabet_to_bytes(token)) {
      pending_ += *bytes;
    } else {
      pending_.append(token);
    }
    const size_t whole = pending_.size() - incomplete_utf8_suffix(pending_);
    if (whole == 0) return;
    sink(replace_invalid_utf8(std::string_view(pending_).substr(0, whole)));
    pending_.erase(0, whole);
  }
  void finish(TextSink sink) override {
    if (!pending_.empty()) sink(replace_invalid_utf8(pending_));
    pending_.clear();
  }

 private:
  std::string pending_;
};

// A run of byte tokens is text when all of it is UTF-8, else one U+FFFD a byte; so it waits for its
// end.
class ByteFallbackStep : public DecodeStep {
 public:
  void push(std::string_view token, TextSink sink) override {
    if (const auto byte = parse_byte_token(token)) {
      run_.push_back(static_cast<char>(*byte));
      return;
    }
    finish(sink);
    sink(token);
  }
  void finish(TextSink sink) override {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      sink(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) sink("\xEF\xBF\xBD");
    }
    run_.clear();
  }

 private:
  std::string run_;
};

class PassStep : public DecodeStep {
 public:
  void push(std::string_view token, TextSink sink) override { sink(token); }
};

class JoinStep : public DecodeStep {
 public:
  void push(std::string_view token, TextSink sink) override {
    if (!first_) sink(" ");
    first_ = false;
    sink(token);
  }

 private:
  bool first_ = true;
};

// A function of one token and of whether it is the first and the last.
using TokenFunction = std::function<std::string(std::string_view token, bool first, bool last)>;

class TokenStep : public DecodeStep {
 public:
  explicit TokenStep(const TokenFunction& function) : function_(function) {}
  void push(std::string_view token, TextSink sink) override {
    sink(function_(token, first_, false));
    first_ = false;
  }

 private:
  const TokenFunction& function_;
  bool first_ = true;
};

// Holds the newest token until it is known whether it is the last.
class LastTokenStep : public DecodeStep {
 public:
  explicit LastTokenStep(const TokenFunction& function) : function_(function) {}
  void push(std::string_view token, TextSink sink) override {
    if (holding_) sink(function_(held_, first_, false));
    first_ = first_ && !holding_;
    held_ = token;
    holding_ = true;
  }
  void finish(TextSink sink) override {
    if (holding_) sink(function_(held_, first_, true));
    holding_ = false;
  }

 private:
  const TokenFunction& function_;
  std::string held_;
  bool holding_ = false, first_ = true;
};

// A step over tokens that are parts of one token: waits for all of it.
class WholeStep : public DecodeStep {
 public:
  explicit WholeStep(std::unique_ptr<DecodeStep> step) : step_(std::move(step)) {}
  void push(std::string_view token, TextSink) override { whole_.append(token); }
  void finish(TextSink sink) override {
    step_->push(whole_, sink);
    step_->finish(sink);
  }

 private:
  std::unique_ptr<DecodeStep> step_;
  std::string whole_;
};

struct StripSettings {
  std::string content;
  size_t start, stop;
};

std::string strip(std::string_view token, const StripSettings& settings) {
  for (size_t i = 0; i < settings.start && token.starts_with(settings.content); ++i) {
    token.remove_prefix(settings.content.size());
  }
  for (size_t i = 0; i < settings.stop && token.ends_with(settings.content); ++i) {
    token.remove_suffix(settings.content.size());
  }
  return std::string(token);
}

// Strip over one token that comes in parts: a count for the start, a held tail for the end.
class FusedStripStep : public DecodeStep {
 public:
  explicit FusedStripStep(const StripSettings& settings)
      : settings_(settings), start_left_(settings.start) {}
  void push(std::string_view token, TextSink sink) override {
    const std::string& content = settings_.content;
    while (start_left_ > 0 && token.starts_with(content)) {
      token.remove_prefix(content.size());
      --start_left_;
    }
    if (token.empty()) return;
    start_left_ = 0;
    if (settings_.stop == 0) return sink(token);
    size_t tail = 0;
    while (token.ends_with(content)) {
      token.remove_suffix(content.size());
      ++tail;
    }
    if (!token.empty()) {
      release(tail_, sink);
      tail_ = 0;
      sink(token);
    }
    tail_ += tail;
  }
  void finish(TextSink sink) override { release(tail_ - std::min(tail_, settings_.stop), sink); }

 private:
  void release(size_t count, TextSink sink) const {
    for (size_t i = 0; i < count; ++i) sink(settings_.content);
  }

  const StripSettings& settings_;
  size_t start_left_;
  size_t tail_ = 0;
};

template <typename Step>
class SimpleFactory : public DecodeStepFactory {
 public:
  explicit SimpleFactory(bool fuses) : fuses_(fuses) {}
  std::unique_ptr<DecodeStep> make(bool fused) const override {
    auto step = std::make_unique<Step>();
    if (fused && !fuses_) return std::make_unique<WholeStep>(std::move(step));
    return step;
  }
  bool fuses() const override { return fuses_; }

 private:
  bool fuses_;
};

class FunctionFactory : public DecodeStepFactory {
 public:
  FunctionFactory(TokenFunction function, bool needs_last)
      : function_(std::move(function)), needs_last_(needs_last) {}
  std::unique_ptr<DecodeStep> make(bool fused) const override {
    std::unique_ptr<DecodeStep> step;
    if (needs_last_) {
      step = std::make_unique<LastTokenStep>(function_);
    } else {
      step = std::make_unique<TokenStep>(function_);
    }
    if (fused) return std::make_unique<WholeStep>(std::move(step));
    return step;
  }

 private:
  TokenFunction function_;
  bool needs_last_;
};

class StripFactory : public DecodeStepFactory {
 public:
  explicit StripFactory(StripSettings settings)
      : settings_(std::move(settings)),
        function_([this](std::string_view token, bool, bool) { return strip(token, settings_); }) {}
  std::unique_ptr<DecodeStep> make(bool fused) const override {
    if (fused) return std::make_unique<FusedStripStep>(settings_);
    return std::make_unique<TokenStep>(function_);
  }

 private:
  StripSettings settings_;
  TokenFunction function_;
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t pos = 0;
  for (size_t at; (at = text.find(from, pos)) != std::string_view::npos; pos = at + from.size()) {
    out.append(text.substr(pos, at - pos)).append(to);
  }
  return out.append(text.substr(pos));
}

// What WordPiece calls cleanup: as clean_up_spaces, with " do not" besides.
std::string clean_up_word(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kRules{{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kRules) {
    if (!from.empty()) text = replace_all(text, from, to);
  }
  return text;
}

// The end of the longest beginning of `text` that no clean-up rule can change any more together
// with what follows: right before a space after a letter or digit that is inside no rule.
size_t settled(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;) {
    if (text[i] != ' ') continue;
    const char c = text[i - 1];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (plain && c != 'n' && c != 'v' && c != 'r') return i;
  }
  return 0;
}

}  // namespace

std::string clean_up_spaces(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kRules{{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
  return text;
}

std::unique_ptr<DecodeStepFactory> byte_level_decoder() {
  return std::make_unique<SimpleFactory<ByteLevelStep>>(true);
}
std::unique_ptr<DecodeStepFactory> byte_fallback_decoder() {
  return std::make_unique<SimpleFactory<ByteFallbackStep>>(false);
}
std::unique_ptr<DecodeStepFactory> fuse_decoder() {
  return std::make_unique<SimpleFactory<PassStep>>(true);
}
std::unique_ptr<DecodeStepFactory> join_decoder() {
  return std::make_unique<SimpleFactory<JoinStep>>(false);
}
std::unique_ptr<DecodeStepFactory> replace_decoder(std::shared_ptr<const Matcher> pattern,
                                                   std::string content) {
  auto function = [pattern = std::move(pattern), content = std::move(content)](
                      std::string_view token, bool, bool) {
    std::string out;
    size_t pos = 0;
    for (Span match; pattern->next(token, pos, &match); pos = match.end) {
      out.append(token.substr(pos, match.begin - pos)).append(content);
    }
    return out.append(token.substr(pos));
  };
  return std::make_unique<FunctionFactory>(std::move(function), false);
}
std::unique_ptr<DecodeStepFactory> strip_decoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripFactory>(StripSettings{std::move(content), start, stop});
}
std::unique_ptr<DecodeStepFactory> metaspace_decoder(std::string replacement, bool drop_first) {
  auto function = [replacement = std::move(replacement), drop_first](std::string_view token,
                                                                     bool first, bool) {
    return replace_all(token, replacement, first && drop_first ? "" : " ");
  };
  return std::make_unique<FunctionFactory>(std::move(function), false);
}
std::unique_ptr<DecodeStepFactory> word_piece_decoder(std::string prefix, bool cleanup) {
  auto function = [prefix = std::move(prefix), cleanup](std::string_view token, bool first, bool) {
    std::string out(token);
    if (!first) {
      const bool continues = token.starts_with(prefix);
      out = continues ? out.substr(prefix.size()) : " " + out;
    }
    return cleanup ? clean_up_word(std::move(out)) : out;
  };
  return std::make_unique<FunctionFactory>(std::move(function), false);
}
std::unique_ptr<DecodeStepFactory> bpe_decoder(std::string suffix) {
  auto function = [suffix = std::move(suffix)](std::string_view token, bool, bool last) {
    return suffix.empty() ? std::string(token) : replace_all(token, suffix, last ? "" : " ");
  };
  return std::make_unique<FunctionFactory>(std::move(function), true);
}

DecodeStream::DecodeStream(const DecodeSteps& steps, bool clean_up) : clean_up_(clean_up) {
  bool fused = false;
  for (const auto& step : steps) {
    steps_.push_back(step->make(fused));
    fused = fused || step->fuses();
  }
}

// As deep as there are steps, which the loader bounds.
void DecodeStream::run(size_t step, std::string_view token, std::string* out) {
  if (step == steps_.size()) return append(token, out);
  steps_[step]->push(token, [&](std::string_view text) { run(step + 1, text, out); });
}

void DecodeStream::append(std::string_view text, std::string* out) {
  if (!clean_up_) {
    out->append(text);
    return;
  }
  held_.append(text);
  const size_t end = settled(held_);
  out->append(clean_up_spaces(held_.substr(0, end)));
  held_.erase(0, end);
}

void DecodeStream::push(std::string_view token, std::string* out) { run(0, token, out); }

void DecodeStream::finish(std::string* out) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i]->finish([&](std::string_view text) { run(i + 1, text, out); });
  }
  if (clean_up_) out->append(clean_up_spaces(std::move(held_)));
  held_.clear();
}

}  // namespace pelton::text
