// Tokenizers from the vocabulary in a GGUF file's metadata.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/model_file.h"
#include "text/pipeline.h"
#include "text/unigram.h"

namespace pelton::text {
namespace {

enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr std::string_view kBlank = "\xE2\x96\x81";  // ▁
constexpr std::string_view kChatOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kChatThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kChatMarks =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters with case. Those that editors fold into others are written as numbers.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

struct PreSettings {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;
  bool nfc = false, ignore_merges = false, add_bos = false;
};

// How each named pre-tokenizer cuts text; patterns apply one after the other.
const std::vector<PreSettings>& pre_settings() {
  static const std::vector<PreSettings> all = {
      {{"gpt-2", "phi-2", "olmo", "mpt", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de",
        "jina-v2-code", "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "granite-docling",
        "trillion"},
       {kGpt2Pattern}},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {R"(\p{N})", kGpt2Pattern}},
      {{"qwen2", "deepseek-r1-qwen", "kormo"}, {kChatOneDigit}, true},
      {{"stablelm2", "hunyuan", "megrez"}, {kChatOneDigit}},
      {{"qwen35"}, {kChatMarks}, true},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kChatThreeDigits},
       false,
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kChatThreeDigits}},
      {{"gpt-4o", "llama4"}, {kO200k}},
      {{"tekken"}, {kTekken}, false, true, true},
      {{"deepseek-v3", "hunyuan-dense"}, {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek}},
      {{"deepseek-llm"},
       {R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
        "[一-龥ࠀ-一가-퟿]+", R"(\p{N}+)"}},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"}},
  };
  return all;
}

Result<const PreSettings*> find_pre(const std::string& name) {
  for (const PreSettings& settings : pre_settings()) {
    const auto& names = settings.names;
    if (std::find(names.begin(), names.end(), name.empty() ? "default" : name) != names.end()) {
      return &settings;
    }
  }
  return unsupported(fmt::format("tokenizer.ggml.pre: unknown pre-tokenizer \"{}\"", name));
}

// Ids in the metadata are signed and may point anywhere.
Result<std::optional<int32_t>> checked_id(std::optional<int64_t> id, size_t size,
                                          std::string_view name) {
  if (!id || *id == -1 || *id == 0xFFFFFFFF) return std::optional<int32_t>();
  if (*id < 0 || *id >= static_cast<int64_t>(size)) {
    return data_loss(
        fmt::format("tokenizer.ggml.{}: {} is outside a vocabulary of {}", name, *id, size));
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

class GgufLoader {
 public:
  GgufLoader(GgufVocabulary vocabulary, bool sentencepiece)
      : in_(std::move(vocabulary)), sentencepiece_(sentencepiece) {}

  Result<PipelineParts> run() {
    if (Status s = check_arrays(); !s.ok()) return s;
    if (Status s = load_ids(); !s.ok()) return s;
    if (Status s = load_vocabulary(); !s.ok()) return s;
    Status s;
    if (in_.model == "gpt2") {
      s = load_byte_level();
    } else if (in_.model == "llama") {
      s = load_sentencepiece(false);
    } else if (in_.model == "t5") {
      s = load_sentencepiece(true);
    } else {
      s = unsupported(fmt::format("tokenizer.ggml.model: unknown tokenizer \"{}\"", in_.model));
    }
    if (!s.ok()) return s;
    return std::move(parts_);
  }

 private:
  Status check_arrays() {
    const size_t size = in_.tokens.size();
    if (size == 0 || size > static_cast<size_t>(kMaxVocabulary)) {
      return data_loss(
          fmt::format("tokenizer.ggml.tokens: {} tokens, expected 1 to {}", size, kMaxVocabulary));
    }
    if (!in_.token_types.empty() && in_.token_types.size() != size) {
      return data_loss(fmt::format("tokenizer.ggml.token_type: {} entries for {} tokens",
                                   in_.token_types.size(), size));
    }
    for (size_t id = 0; id < in_.token_types.size(); ++id) {
      const int64_t kind = in_.token_types[id];
      if (kind < 0 || kind > int64_t{kByte}) {
        return data_loss(
            fmt::format("tokenizer.ggml.token_type: token {} is of type {}", id, kind));
      }
    }
    if (!in_.scores.empty() && in_.scores.size() != size) {
      return data_loss(
          fmt::format("tokenizer.ggml.scores: {} entries for {} tokens", in_.scores.size(), size));
    }
    return {};
  }

  Status load_ids() {
    const auto set = [&](std::optional<int64_t> from, std::string_view name,
                         std::optional<int32_t>* to) -> Status {
      auto id = checked_id(from, in_.tokens.size(), name);
      if (!id.ok()) return id.status();
      *to = *id;
      return {};
    };
    std::optional<int32_t> eot;
    if (Status s = set(in_.bos_id, "bos_token_id", &parts_.bos_id); !s.ok()) return s;
    if (Status s = set(in_.eos_id, "eos_token_id", &parts_.eos_id); !s.ok()) return s;
    if (Status s = set(in_.eot_id, "eot_token_id", &eot); !s.ok()) return s;
    if (Status s = set(in_.unknown_id, "unknown_token_id", &unknown_id_); !s.ok()) return s;
    if (eot) parts_.more_end_ids.push_back(*eot);
    parts_.unk_id = unknown_id_;
    // Files are known whose padding lies outside their vocabulary; it is but a name here.
    if (auto pad = checked_id(in_.padding_id, in_.tokens.size(), "padding_token_id"); pad.ok())
      parts_.pad_id = *pad;
    return {};
  }

  int64_t type(size_t id) const {
    return in_.token_types.empty() ? int64_t{kNormal} : in_.token_types[id];
  }

  Status load_vocabulary() {
    parts_.vocabulary = std::make_unique<Vocabulary>(in_.tokens.size());
    for (size_t id = 0; id < in_.tokens.size(); ++id) {
      std::string& piece = in_.tokens[id];
      if (!is_valid_utf8(piece)) piece = replace_invalid_utf8(piece);
      const int64_t kind = type(id);
      const bool special = kind == kControl || kind == kUnknown;
      const auto number = static_cast<int32_t>(id);
      if (special || kind == kUserDefined) {
        parts_.added.push_back({piece, number, false, false, false, false, special});
      }
      if (special) parts_.vocabulary->mark_control(number);
      if (Status s = parts_.vocabulary->add(std::move(piece), number); !s.ok()) return s;
    }
    parts_.vocabulary->finish();
    return {};
  }

  void add_bos_and_eos(bool add_bos, bool add_eos) {
    if (in_.add_bos.value_or(add_bos) && parts_.bos_id) parts_.prefix_ids = {*parts_.bos_id};
    if (in_.add_eos.value_or(add_eos) && parts_.eos_id) parts_.suffix_ids = {*parts_.eos_id};
  }

  Status load_byte_level() {
    auto settings = find_pre(in_.pre);
    if (!settings.ok()) return settings.status();
    const PreSettings& pre = **settings;
    if (in_.merges.empty()) return data_loss("tokenizer.ggml.merges: missing");
    std::vector<BpeMerge> merges;
    merges.reserve(in_.merges.size());
    for (const std::string& merge : in_.merges) {
      // A token may hold spaces, but not begin with one.
      const size_t cut = merge.find(' ', 1);
      if (cut == std::string::npos || cut + 1 >= merge.size()) {
        return data_loss(
            fmt::format("tokenizer.ggml.merges[{}]: \"{}\" is not a pair", merges.size(), merge));
      }
      merges.push_back(
          {std::string_view(merge).substr(0, cut), std::string_view(merge).substr(cut + 1)});
    }
    BpeOptions options;
    options.byte_level = true;
    options.ignore_merges = pre.ignore_merges;
    auto model = BpeModel::from_merges(*parts_.vocabulary, merges, std::move(options));
    if (!model.ok()) return model.status().with_context("tokenizer.ggml.merges");
    parts_.model = std::move(*model);
    if (pre.nfc) parts_.normalizer = form_normalizer(NormalForm::kNfc);
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (const std::string_view pattern : pre.patterns) {
      auto matcher = make_matcher(pattern);
      if (!matcher.ok()) return matcher.status();
      steps.push_back(split_pre_tokenizer(std::move(*matcher), SplitBehavior::kIsolated, false));
    }
    parts_.pre_tokenizer = sequence_pre_tokenizer(std::move(steps));
    parts_.decoder.push_back(byte_level_decoder());
    add_bos_and_eos(pre.add_bos, false);
    return {};
  }

  Status load_sentencepiece(bool unigram) {
    if (in_.scores.empty()) return data_loss("tokenizer.ggml.scores: missing");
    const bool prefix = in_.add_space_prefix.value_or(true);
    std::vector<std::unique_ptr<Normalizer>> steps;
    if (!in_.precompiled_charsmap.empty()) {
      auto map = Charsmap::parse(in_.precompiled_charsmap);
      if (!map.ok()) return map.status().with_context("tokenizer.ggml");
      steps.push_back(charsmap_normalizer(std::move(*map), Charsmap::Mode::kSentencePiece));
    }
    if (in_.remove_extra_whitespaces.value_or(false)) steps.push_back(collapse_spaces_normalizer());
    if (sentencepiece_) {
      const auto scheme = prefix ? PrependScheme::kFirst : PrependScheme::kNever;
      parts_.pre_tokenizer = metaspace_pre_tokenizer({std::string(kBlank), scheme, false, true});
    } else {
      if (prefix) steps.push_back(prepend_normalizer(" "));
      steps.push_back(replace_normalizer(literal_matcher(" "), std::string(kBlank)));
    }
    parts_.normalizer = sequence_normalizer(std::move(steps));

    std::vector<bool> usable(in_.tokens.size(), true);
    for (size_t id = 0; id < in_.tokens.size(); ++id) {
      usable[id] =
          type(id) != kControl && type(id) != kUnknown && type(id) != kByte && type(id) != kUnused;
    }
    if (Status s = check_unknown(unigram); !s.ok()) return s;
    auto model =
        unigram ? UnigramModel::create(*parts_.vocabulary, in_.scores, usable,
                                       {unknown_id_.value_or(-1), true})
                : BpeModel::from_scores(*parts_.vocabulary, in_.scores, usable, score_options());
    if (!model.ok()) return model.status().with_context("tokenizer.ggml");
    parts_.model = std::move(*model);
    parts_.decoder.push_back(replace_decoder(literal_matcher(std::string(kBlank)), " "));
    parts_.decoder.push_back(byte_fallback_decoder());
    parts_.decoder.push_back(fuse_decoder());
    if (prefix) parts_.decoder.push_back(strip_decoder(" ", 1, 0));
    add_bos_and_eos(!unigram, unigram);
    return {};
  }

  BpeOptions score_options() const {
    BpeOptions options;
    options.byte_fallback = true;
    options.fuse_unk = sentencepiece_;
    options.unk_id = unknown_id_.value_or(-1);
    return options;
  }

  // Every text must have ids: by byte tokens or by an unknown token.
  Status check_unknown(bool unigram) const {
    if (unknown_id_) return {};
    for (int b = 0; b < 256; ++b) {
      const std::string token = byte_token(static_cast<uint8_t>(b));
      if (unigram || parts_.vocabulary->find(token) < 0) {
        return data_loss(
            fmt::format("tokenizer.ggml.tokens: neither {} nor an unknown token is there", token));
      }
    }
    return {};
  }

  GgufVocabulary in_;
  PipelineParts parts_;
  bool sentencepiece_;
  std::optional<int32_t> unknown_id_;
};

}  // namespace

Result<PipelineParts> parts_from_sentencepiece(GgufVocabulary vocabulary) {
  return GgufLoader(std::move(vocabulary), true).run();
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(GgufVocabulary vocabulary) {
  auto parts = GgufLoader(std::move(vocabulary), false).run();
  if (!parts.ok()) return parts.status();
  return make_pipeline(std::move(*parts));
}

}  // namespace pelton::text
