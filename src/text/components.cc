#include "text/components.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "text/unicode.h"

namespace pelton::text {
namespace {

// Nested sequences are flattened; this many steps in all.
constexpr size_t kMaxSteps = 32;

Status unknown_type(const JsonValue& value, std::string_view type) {
  return unsupported(fmt::format("{}: unknown type \"{}\"", value.path(), type));
}

// {"String": "..."} or {"Regex": "..."} or a bare string.
Result<std::unique_ptr<Matcher>> read_pattern(const JsonValue& value) {
  std::string_view text;
  if (const auto bare = value.get("pattern"); bare && bare->is_string()) {
    if (bare->element().get(text) == simdjson::SUCCESS) return literal_matcher(std::string(text));
  }
  const auto pattern = value.get("pattern");
  if (!pattern) return value.error_at("pattern", "missing");
  if (pattern->get("String")) {
    auto literal = pattern->string("String");
    if (!literal.ok()) return literal.status();
    if (literal->empty()) return value.error_at("pattern", "an empty string matches nothing");
    return literal_matcher(std::string(*literal));
  }
  auto regex = pattern->string("Regex");
  if (!regex.ok()) return regex.status();
  auto matcher = make_matcher(*regex);
  if (!matcher.ok()) return matcher.status().with_context(value.path());
  return matcher;
}

Result<SplitBehavior> read_behavior(const JsonValue& value, std::string_view fallback) {
  auto name = value.string_or("behavior", fallback);
  if (!name.ok()) return name.status();
  if (*name == "Removed") return SplitBehavior::kRemoved;
  if (*name == "Isolated") return SplitBehavior::kIsolated;
  if (*name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (*name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (*name == "Contiguous") return SplitBehavior::kContiguous;
  return value.error_at("behavior", fmt::format("unknown value \"{}\"", *name));
}

// All flags at once: the first error, or the values in order.
Result<std::vector<bool>> read_flags(const JsonValue& value,
                                     std::vector<std::pair<std::string_view, bool>> flags) {
  std::vector<bool> out;
  for (const auto& [key, fallback] : flags) {
    auto flag = value.boolean(key, fallback);
    if (!flag.ok()) return flag.status();
    out.push_back(*flag);
  }
  return out;
}

// Leaves of nested "Sequence" components in order, without recursion.
Result<std::vector<JsonValue>> flatten(const JsonValue& root, std::string_view children) {
  std::vector<JsonValue> waiting{root}, leaves;
  size_t seen = 0;
  while (!waiting.empty()) {
    const JsonValue value = waiting.back();
    waiting.pop_back();
    if (++seen > 4 * kMaxSteps) return root.error("too many steps");
    auto type = value.string("type");
    if (!type.ok()) return type.status();
    if (*type != "Sequence") {
      leaves.push_back(value);
      if (leaves.size() > kMaxSteps) return root.error("too many steps");
      continue;
    }
    auto items = value.items(children);
    if (!items.ok()) return items.status();
    if (items->size() > kMaxSteps) return value.error("too many steps");
    waiting.insert(waiting.end(), items->rbegin(), items->rend());
  }
  return leaves;
}

Result<std::unique_ptr<Normalizer>> read_bert_normalizer(const JsonValue& value) {
  auto lowercase = value.boolean("lowercase", true);
  if (!lowercase.ok()) return lowercase.status();
  auto flags = read_flags(
      value, {{"clean_text", true}, {"handle_chinese_chars", true}, {"strip_accents", *lowercase}});
  if (!flags.ok()) return flags.status();
  return bert_normalizer({(*flags)[0], (*flags)[1], (*flags)[2], *lowercase});
}

Result<std::unique_ptr<Normalizer>> read_charsmap(const JsonValue& value) {
  auto encoded = value.string("precompiled_charsmap");
  if (!encoded.ok()) return encoded.status();
  const auto blob = decode_base64(*encoded);
  if (!blob) return value.error_at("precompiled_charsmap", "not base64");
  auto map = Charsmap::parse(*blob);
  if (!map.ok()) return map.status().with_context(value.path());
  return charsmap_normalizer(std::move(*map), Charsmap::Mode::kGraphemes);
}

Result<std::unique_ptr<Normalizer>> read_replace(const JsonValue& value) {
  auto pattern = read_pattern(value);
  if (!pattern.ok()) return pattern.status();
  auto content = value.string("content");
  if (!content.ok()) return content.status();
  return replace_normalizer(std::move(*pattern), std::string(*content));
}

// Replacements multiply: a few long ones, one after the other, would turn a word into gigabytes.
Status check_growth(const JsonValue& value, const std::vector<JsonValue>& steps) {
  constexpr size_t kMaxGrowth = 4096;  // bytes that one byte may become
  size_t growth = 1;
  for (const JsonValue& step : steps) {
    for (const char* key : {"content", "prepend"}) {
      if (!step.get(key)) continue;
      const auto text = step.string(key);
      if (!text.ok()) return text.status();
      growth *= std::clamp<size_t>(text->size(), 1, kMaxGrowth + 1);
      if (growth > kMaxGrowth) {
        return value.error(
            fmt::format("replacements would turn one byte into more than {}", kMaxGrowth));
      }
    }
  }
  return {};
}

Result<std::unique_ptr<Normalizer>> read_one_normalizer(const JsonValue& value) {
  auto type = value.string("type");
  if (!type.ok()) return type.status();
  if (*type == "NFC") return form_normalizer(NormalForm::kNfc);
  if (*type == "NFD") return form_normalizer(NormalForm::kNfd);
  if (*type == "NFKC") return form_normalizer(NormalForm::kNfkc);
  if (*type == "NFKD") return form_normalizer(NormalForm::kNfkd);
  if (*type == "Lowercase") return lowercase_normalizer();
  if (*type == "StripAccents") return strip_accents_normalizer();
  if (*type == "ByteLevel") return byte_level_normalizer();
  if (*type == "BertNormalizer") return read_bert_normalizer(value);
  if (*type == "Precompiled") return read_charsmap(value);
  if (*type == "Replace") return read_replace(value);
  if (*type == "Prepend") {
    auto prefix = value.string("prepend");
    if (!prefix.ok()) return prefix.status();
    return prepend_normalizer(std::string(*prefix));
  }
  if (*type == "Strip") {
    auto flags = read_flags(value, {{"strip_left", true}, {"strip_right", true}});
    if (!flags.ok()) return flags.status();
    return strip_normalizer((*flags)[0], (*flags)[1]);
  }
  return unknown_type(value, *type);
}

Result<std::unique_ptr<PreTokenizer>> split_chars(const JsonValue& value, uint16_t mask,
                                                  SplitBehavior behavior) {
  (void)value;
  return split_pre_tokenizer(char_matcher(mask), behavior, false);
}

Result<std::unique_ptr<PreTokenizer>> read_split(const JsonValue& value) {
  auto pattern = read_pattern(value);
  if (!pattern.ok()) return pattern.status();
  if (!value.get("behavior")) return value.error_at("behavior", "missing");
  auto behavior = read_behavior(value, "");
  if (!behavior.ok()) return behavior.status();
  auto invert = value.boolean("invert", false);
  if (!invert.ok()) return invert.status();
  return split_pre_tokenizer(std::move(*pattern), *behavior, *invert);
}

// `replacement` and the scheme, whose older spelling is add_prefix_space.
Result<MetaspaceOptions> read_metaspace(const JsonValue& value) {
  MetaspaceOptions options;
  auto replacement = value.string_or("replacement", "\xE2\x96\x81");
  if (!replacement.ok()) return replacement.status();
  options.replacement = *replacement;
  if (options.replacement.empty() ||
      char_at(options.replacement, 0).length != options.replacement.size()) {
    return value.error_at("replacement", "expected one character");
  }
  auto flags = read_flags(value, {{"add_prefix_space", true}, {"split", true}});
  if (!flags.ok()) return flags.status();
  auto scheme = value.string_or("prepend_scheme", (*flags)[0] ? "always" : "never");
  if (!scheme.ok()) return scheme.status();
  if (*scheme == "always") {
    options.prepend_scheme = PrependScheme::kAlways;
  } else if (*scheme == "first") {
    options.prepend_scheme = PrependScheme::kFirst;
  } else if (*scheme == "never") {
    options.prepend_scheme = PrependScheme::kNever;
  } else {
    return value.error_at("prepend_scheme", fmt::format("unknown value \"{}\"", *scheme));
  }
  options.split = (*flags)[1];
  return options;
}

Result<std::unique_ptr<PreTokenizer>> read_byte_level(const JsonValue& value, bool map) {
  auto flags = read_flags(value, {{"add_prefix_space", true}, {"use_regex", true}});
  if (!flags.ok()) return flags.status();
  return byte_level_pre_tokenizer({(*flags)[0], (*flags)[1], map});
}

Result<std::unique_ptr<PreTokenizer>> read_one_pre_tokenizer(const JsonValue& value, bool map) {
  auto type = value.string("type");
  if (!type.ok()) return type.status();
  if (*type == "ByteLevel") return read_byte_level(value, map);
  if (*type == "Split") return read_split(value);
  if (*type == "Metaspace") {
    auto options = read_metaspace(value);
    if (!options.ok()) return options.status();
    return metaspace_pre_tokenizer(std::move(*options));
  }
  if (*type == "Digits") {
    auto individual = value.boolean("individual_digits", false);
    if (!individual.ok()) return individual.status();
    return split_chars(value, kNumeric,
                       *individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (*type == "Punctuation") {
    auto behavior = read_behavior(value, "Isolated");
    if (!behavior.ok()) return behavior.status();
    return split_chars(value, kPunct, *behavior);
  }
  if (*type == "Whitespace") {
    return split_pre_tokenizer(word_matcher(), SplitBehavior::kRemoved, true);
  }
  if (*type == "WhitespaceSplit") return split_chars(value, kSpace, SplitBehavior::kRemoved);
  if (*type == "CharDelimiterSplit") {
    auto delimiter = value.string("delimiter");
    if (!delimiter.ok()) return delimiter.status();
    if (delimiter->empty()) return value.error_at("delimiter", "expected one character");
    return split_pre_tokenizer(literal_matcher(std::string(*delimiter)), SplitBehavior::kRemoved,
                               false);
  }
  return unknown_type(value, *type);
}

Status read_strip_decoder(const JsonValue& value, DecodeSteps* steps) {
  auto content = value.string("content");
  auto start = value.integer("start"), stop = value.integer("stop");
  if (!content.ok()) return content.status();
  if (!start.ok()) return start.status();
  if (!stop.ok()) return stop.status();
  if (content->empty() || *start < 0 || *stop < 0) return value.error("bad content, start or stop");
  steps->push_back(strip_decoder(std::string(*content), *start, *stop));
  return {};
}

Status read_replace_decoder(const JsonValue& value, DecodeSteps* steps) {
  auto pattern = read_pattern(value);
  if (!pattern.ok()) return pattern.status();
  auto content = value.string("content");
  if (!content.ok()) return content.status();
  steps->push_back(replace_decoder(std::move(*pattern), std::string(*content)));
  return {};
}

Status read_word_piece_decoder(const JsonValue& value, DecodeSteps* steps) {
  auto prefix = value.string_or("prefix", "##");
  if (!prefix.ok()) return prefix.status();
  auto cleanup = value.boolean("cleanup", true);
  if (!cleanup.ok()) return cleanup.status();
  steps->push_back(word_piece_decoder(std::move(*prefix), *cleanup));
  return {};
}

Status read_one_decoder(const JsonValue& value, DecodeSteps* steps) {
  auto type = value.string("type");
  if (!type.ok()) return type.status();
  if (*type == "ByteLevel") {
    steps->push_back(byte_level_decoder());
  } else if (*type == "ByteFallback") {
    steps->push_back(byte_fallback_decoder());
  } else if (*type == "Fuse") {
    steps->push_back(fuse_decoder());
  } else if (*type == "Strip") {
    return read_strip_decoder(value, steps);
  } else if (*type == "Replace") {
    return read_replace_decoder(value, steps);
  } else if (*type == "WordPiece") {
    return read_word_piece_decoder(value, steps);
  } else if (*type == "Metaspace") {
    auto options = read_metaspace(value);
    if (!options.ok()) return options.status();
    steps->push_back(
        metaspace_decoder(options->replacement, options->prepend_scheme != PrependScheme::kNever));
  } else if (*type == "BPEDecoder") {
    auto suffix = value.string_or("suffix", "</w>");
    if (!suffix.ok()) return suffix.status();
    steps->push_back(bpe_decoder(std::move(*suffix)));
  } else {
    return unknown_type(value, *type);
  }
  return {};
}

// ["token", id]
Result<int32_t> read_token_pair(const JsonValue& value, std::string_view key) {
  auto items = value.items(key);
  if (!items.ok()) return items.status();
  int64_t id = -1;
  if (items->size() != 2 || (*items)[1].element().get(id) != simdjson::SUCCESS || id < 0 ||
      id >= kMaxVocabulary) {
    return value.error_at(key, "expected a token and its id");
  }
  return static_cast<int32_t>(id);
}

Status read_special_token(const JsonValue& template_value, std::string_view name,
                          std::vector<int32_t>* out) {
  const auto tokens = template_value.get("special_tokens");
  const auto token = tokens ? tokens->get(name) : std::nullopt;
  if (!token) {
    return template_value.error(fmt::format("special token \"{}\" is not defined", name));
  }
  auto ids = token->items("ids");
  if (!ids.ok()) return ids.status();
  for (const JsonValue& item : *ids) {
    int64_t id = -1;
    if (item.element().get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxVocabulary) {
      return item.error("expected a token id");
    }
    out->push_back(static_cast<int32_t>(id));
  }
  return {};
}

Status read_template(const JsonValue& value, PipelineParts* parts) {
  auto pieces = value.items("single");
  if (!pieces.ok()) return pieces.status();
  bool seen_text = false;
  // Processors apply one after the other, each around what the one before made.
  std::vector<int32_t> before, after;
  for (const JsonValue& piece : *pieces) {
    if (const auto special = piece.get("SpecialToken")) {
      auto name = special->string("id");
      if (!name.ok()) return name.status();
      if (Status s = read_special_token(value, *name, seen_text ? &after : &before); !s.ok()) {
        return s;
      }
    } else if (piece.get("Sequence")) {
      if (seen_text) return piece.error("the text may appear once");
      seen_text = true;
    } else {
      return piece.error("expected SpecialToken or Sequence");
    }
  }
  if (!seen_text) return value.error_at("single", "the text does not appear");
  parts->prefix_ids.insert(parts->prefix_ids.begin(), before.begin(), before.end());
  parts->suffix_ids.insert(parts->suffix_ids.end(), after.begin(), after.end());
  return {};
}

}  // namespace

Result<std::unique_ptr<Normalizer>> read_normalizer(const JsonValue& value) {
  auto leaves = flatten(value, "normalizers");
  if (!leaves.ok()) return leaves.status();
  if (Status s = check_growth(value, *leaves); !s.ok()) return s;
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const JsonValue& leaf : *leaves) {
    auto step = read_one_normalizer(leaf);
    if (!step.ok()) return step.status();
    steps.push_back(std::move(*step));
  }
  if (steps.size() == 1) return std::move(steps.front());
  return sequence_normalizer(std::move(steps));
}

bool ends_in_byte_level(const JsonValue& pre_tokenizer) {
  auto leaves = flatten(pre_tokenizer, "pretokenizers");
  if (!leaves.ok() || leaves->empty()) return false;
  size_t found = 0;
  for (const JsonValue& leaf : *leaves) {
    auto type = leaf.string("type");
    found += type.ok() && *type == "ByteLevel" ? 1 : 0;
  }
  auto last = leaves->back().string("type");
  return found == 1 && last.ok() && *last == "ByteLevel";
}

Result<std::unique_ptr<PreTokenizer>> read_pre_tokenizer(const JsonValue& value, bool raw_bytes) {
  auto leaves = flatten(value, "pretokenizers");
  if (!leaves.ok()) return leaves.status();
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const JsonValue& leaf : *leaves) {
    auto type = leaf.string("type");
    if (type.ok() && *type == "BertPreTokenizer") {
      steps.push_back(split_pre_tokenizer(char_matcher(kSpace), SplitBehavior::kRemoved, false));
      steps.push_back(split_pre_tokenizer(char_matcher(kPunct), SplitBehavior::kIsolated, false));
      continue;
    }
    auto step = read_one_pre_tokenizer(leaf, !raw_bytes);
    if (!step.ok()) return step.status();
    steps.push_back(std::move(*step));
  }
  if (steps.size() == 1) return std::move(steps.front());
  return sequence_pre_tokenizer(std::move(steps));
}

Status read_decoder(const JsonValue& value, DecodeSteps* steps) {
  auto leaves = flatten(value, "decoders");
  if (!leaves.ok()) return leaves.status();
  if (Status s = check_growth(value, *leaves); !s.ok()) return s;
  for (const JsonValue& leaf : *leaves) {
    if (Status s = read_one_decoder(leaf, steps); !s.ok()) return s;
  }
  return {};
}

Status read_post_processor(const JsonValue& value, PipelineParts* parts) {
  auto leaves = flatten(value, "processors");
  if (!leaves.ok()) return leaves.status();
  for (const JsonValue& leaf : *leaves) {
    auto type = leaf.string("type");
    if (!type.ok()) return type.status();
    if (*type == "ByteLevel") continue;  // only moves offsets
    if (*type == "TemplateProcessing") {
      if (Status s = read_template(leaf, parts); !s.ok()) return s;
    } else if (*type == "BertProcessing" || *type == "RobertaProcessing") {
      auto cls = read_token_pair(leaf, "cls");
      if (!cls.ok()) return cls.status();
      auto sep = read_token_pair(leaf, "sep");
      if (!sep.ok()) return sep.status();
      parts->prefix_ids.insert(parts->prefix_ids.begin(), *cls);
      parts->suffix_ids.push_back(*sep);
    } else {
      return unknown_type(leaf, *type);
    }
  }
  return {};
}

}  // namespace pelton::text
