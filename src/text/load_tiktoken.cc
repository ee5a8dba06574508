// tiktoken rank lists: a token in base64 and its rank on each line. Any two neighbours whose bytes
// together are a token may merge, lowest rank first.
#include <fmt/format.h>

#include <charconv>

#include "text/bpe.h"
#include "text/model_file.h"
#include "text/tokenizer_config.h"

namespace pelton::text {
namespace {

constexpr std::string_view kChatThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kChatOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Family {
  int32_t ranks;
  std::string_view pattern;
  bool nfc;
  std::vector<std::string_view> special;  // ids from `ranks` on
  std::string_view bos, eos;
};

// The rank lists that model families ship, told apart by their length.
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {128000,
       kChatThreeDigits,
       false,
       {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
        "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
       "<|begin_of_text|>",
       "<|end_of_text|>"},
      {200000,
       kO200k,
       false,
       {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>",
        "<|fim_suffix|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"},
       "<|begin_of_text|>",
       "<|end_of_text|>"},
      {151643,
       kChatOneDigit,
       true,
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
       "",
       "<|endoftext|>"},
  };
  return all;
}

struct Line {
  std::string bytes;
  int64_t rank = -1;
};

Result<Line> read_line(std::string_view text, size_t number) {
  const auto bad = [&] { return data_loss(fmt::format("line {}: not base64 and a rank", number)); };
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return bad();
  auto bytes = decode_base64(text.substr(0, space));
  Line line;
  const char* begin = text.data() + space + 1;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, line.rank);
  if (!bytes || bytes->empty() || parsed.ec != std::errc() || parsed.ptr != end) return bad();
  line.bytes = std::move(*bytes);
  return line;
}

Status read_ranks(std::string_view content, Vocabulary* vocabulary) {
  size_t number = 0;
  while (!content.empty()) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view text = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    ++number;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    auto line = read_line(text, number);
    if (!line.ok()) return line.status();
    if (Status s = vocabulary->add(bytes_to_alphabet(line->bytes), line->rank); !s.ok()) {
      return s.with_context(fmt::format("line {}", number));
    }
  }
  return {};
}

Result<PipelineParts> make_parts(std::unique_ptr<Vocabulary> vocabulary, const Family& family) {
  PipelineParts parts;
  parts.vocabulary = std::move(vocabulary);
  const int32_t size = parts.vocabulary->size();
  std::vector<double> scores(size);
  std::vector<bool> mergeable(size);
  for (int32_t id = 0; id < size; ++id) {
    scores[id] = -static_cast<double>(id);
    mergeable[id] = parts.vocabulary->contains(id);
  }
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = true;
  auto model = BpeModel::from_scores(*parts.vocabulary, scores, mergeable, std::move(options));
  if (!model.ok()) return model.status();
  parts.model = std::move(*model);
  auto matcher = make_matcher(family.pattern);
  if (!matcher.ok()) return matcher.status();
  parts.pre_tokenizer = split_pre_tokenizer(std::move(*matcher), SplitBehavior::kIsolated, false);
  if (family.nfc) parts.normalizer = form_normalizer(NormalForm::kNfc);
  parts.decoder.push_back(byte_level_decoder());
  for (size_t i = 0; i < family.special.size(); ++i) {
    AddedToken token;
    token.content = std::string(family.special[i]);
    token.id = size + static_cast<int32_t>(i);
    token.special = true;
    if (token.content == family.bos) parts.bos_id = token.id;
    if (token.content == family.eos) parts.eos_id = token.id;
    parts.added.push_back(std::move(token));
  }
  if (parts.bos_id) parts.prefix_ids.push_back(*parts.bos_id);
  return parts;
}

}  // namespace

bool looks_like_tiktoken(std::string_view content) {
  const std::string_view first = content.substr(0, std::min(content.find('\n'), content.size()));
  const bool carriage = first.ends_with('\r');
  return read_line(first.substr(0, first.size() - (carriage ? 1 : 0)), 1).ok();
}

Result<std::shared_ptr<const Tokenizer>> from_tiktoken(std::string_view content,
                                                       std::string_view config) {
  auto vocabulary = std::make_unique<Vocabulary>();
  if (Status s = read_ranks(content, vocabulary.get()); !s.ok()) return s;
  vocabulary->finish();
  for (const Family& family : families()) {
    if (family.ranks != vocabulary->size()) continue;
    auto parts = make_parts(std::move(vocabulary), family);
    if (!parts.ok()) return parts.status();
    if (Status s = apply_tokenizer_config(config, true, &*parts); !s.ok()) return s;
    return make_pipeline(std::move(*parts));
  }
  return unsupported(fmt::format(
      "a tiktoken list of {} ranks: its pattern is not known (Llama 3, Llama 4 and Qwen are)",
      vocabulary->size()));
}

}  // namespace pelton::text
