#include "text/normalizer.h"

#include "base/utf8.h"
#include "text/vocabulary.h"

namespace pelton::text {
namespace {

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  std::string apply(std::string_view text) const override { return normalize(text, form_); }

 private:
  NormalForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  std::string apply(std::string_view text) const override { return lowercase(text); }
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string_view text) const override {
    return text.empty() ? std::string() : prefix_ + std::string(text);
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(std::unique_ptr<Matcher> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string_view text) const override {
    std::string out;
    out.reserve(text.size());
    size_t pos = 0;
    for (Span match; pattern_->next(text, pos, &match); pos = match.end) {
      out.append(text.substr(pos, match.begin - pos)).append(content_);
    }
    return out.append(text.substr(pos));
  }

 private:
  std::unique_ptr<Matcher> pattern_;
  std::string content_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string_view text) const override {
    const auto space = [](const Char& c) { return (char_bits(c.code) & kSpace) != 0; };
    while (left_ && !text.empty() && space(char_at(text, 0))) {
      text.remove_prefix(char_at(text, 0).length);
    }
    while (right_ && !text.empty() && space(char_before(text, text.size()))) {
      text.remove_suffix(char_before(text, text.size()).length);
    }
    return std::string(text);
  }

 private:
  bool left_, right_;
};

template <typename Keep>
std::string filter(std::string_view text, Keep keep) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Char c = char_at(text, pos);
    if (keep(c.code)) out.append(text.substr(pos, c.length));
    pos += c.length;
  }
  return out;
}

class StripAccentsNormalizer : public Normalizer {
 public:
  std::string apply(std::string_view text) const override {
    return filter(text, [](uint32_t code) { return (char_bits(code) & kAccent) == 0; });
  }
};

class ByteLevelNormalizer : public Normalizer {
 public:
  std::string apply(std::string_view text) const override { return bytes_to_alphabet(text); }
};

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}
  std::string apply(std::string_view text) const override {
    std::string out(text);
    if (options_.clean_text) out = clean(out);
    if (options_.handle_chinese_chars) out = separate(out);
    if (options_.strip_accents) {
      out = filter(normalize(out, NormalForm::kNfd),
                   [](uint32_t code) { return (char_bits(code) & kNonSpacing) == 0; });
    }
    return options_.lowercase ? lowercase(out) : out;
  }

 private:
  static std::string clean(std::string_view text) {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const Char c = char_at(text, pos);
      const uint16_t bits = char_bits(c.code);
      if (bits & kBertControl) {
        // Among them are white space controls other than tab, line feed and carriage return.
      } else if (bits & kSpace) {
        out.push_back(' ');
      } else {
        out.append(text.substr(pos, c.length));
      }
      pos += c.length;
    }
    return out;
  }
  static bool chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }
  static std::string separate(std::string_view text) {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const Char c = char_at(text, pos);
      const bool spaced = chinese(c.code);
      if (spaced) out.push_back(' ');
      out.append(text.substr(pos, c.length));
      if (spaced) out.push_back(' ');
      pos += c.length;
    }
    return out;
  }

  BertNormalizerOptions options_;
};

class CharsmapNormalizer : public Normalizer {
 public:
  CharsmapNormalizer(Charsmap map, Charsmap::Mode mode) : map_(std::move(map)), mode_(mode) {}
  std::string apply(std::string_view text) const override { return map_.apply(text, mode_); }

 private:
  Charsmap map_;
  Charsmap::Mode mode_;
};

class CollapseSpacesNormalizer : public Normalizer {
 public:
  std::string apply(std::string_view text) const override {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
      if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
      out.push_back(c);
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  }
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  std::string apply(std::string_view text) const override {
    std::string out(text);
    for (const auto& step : steps_) out = step->apply(out);
    return out;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace

std::unique_ptr<Normalizer> form_normalizer(NormalForm form) {
  return std::make_unique<FormNormalizer>(form);
}
std::unique_ptr<Normalizer> lowercase_normalizer() {
  return std::make_unique<LowercaseNormalizer>();
}
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<Normalizer> replace_normalizer(std::unique_ptr<Matcher> pattern,
                                               std::string content) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}
std::unique_ptr<Normalizer> strip_accents_normalizer() {
  return std::make_unique<StripAccentsNormalizer>();
}
std::unique_ptr<Normalizer> byte_level_normalizer() {
  return std::make_unique<ByteLevelNormalizer>();
}
std::unique_ptr<Normalizer> bert_normalizer(const BertNormalizerOptions& options) {
  return std::make_unique<BertNormalizer>(options);
}
std::unique_ptr<Normalizer> charsmap_normalizer(Charsmap map, Charsmap::Mode mode) {
  return std::make_unique<CharsmapNormalizer>(std::move(map), mode);
}
std::unique_ptr<Normalizer> collapse_spaces_normalizer() {
  return std::make_unique<CollapseSpacesNormalizer>();
}
std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

}  // namespace pelton::text
