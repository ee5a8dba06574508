// Text to text before it is split: Unicode forms, case, replacements.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/charsmap.h"
#include "text/matcher.h"
#include "text/unicode.h"

namespace pelton::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Valid UTF-8 in and out.
  virtual std::string apply(std::string_view text) const = 0;
};

struct BertNormalizerOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = false, lowercase = true;
};

std::unique_ptr<Normalizer> form_normalizer(NormalForm form);
std::unique_ptr<Normalizer> lowercase_normalizer();
std::unique_ptr<Normalizer> prepend_normalizer(std::string prefix);
std::unique_ptr<Normalizer> replace_normalizer(std::unique_ptr<Matcher> pattern,
                                               std::string content);
std::unique_ptr<Normalizer> strip_normalizer(bool left, bool right);
std::unique_ptr<Normalizer> strip_accents_normalizer();
std::unique_ptr<Normalizer> byte_level_normalizer();
std::unique_ptr<Normalizer> bert_normalizer(const BertNormalizerOptions& options);
std::unique_ptr<Normalizer> charsmap_normalizer(Charsmap map, Charsmap::Mode mode);
// Runs of U+0020 become one, those at the ends go: SentencePiece's own white space rule.
std::unique_ptr<Normalizer> collapse_spaces_normalizer();
std::unique_ptr<Normalizer> sequence_normalizer(std::vector<std::unique_ptr<Normalizer>> steps);

}  // namespace pelton::text
