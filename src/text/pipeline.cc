#include "text/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace pelton::text {
namespace {

// Above this many bytes remembering pieces pays.
constexpr size_t kCacheFrom = 4096;

Status check_id(const PipelineParts& parts, int32_t id, std::string_view what) {
  const bool added = std::any_of(parts.added.begin(), parts.added.end(),
                                 [&](const AddedToken& token) { return token.id == id; });
  if (added || parts.vocabulary->contains(id)) return {};
  return data_loss(fmt::format("{} has the id {}, which no token has", what, id));
}

// Of the tokens for which `wanted` holds, as they look after `normalizer` (may be null).
template <typename Wanted>
std::unique_ptr<AddedTokenFinder> make_finder(const std::vector<AddedToken>& added, Wanted wanted,
                                              const Normalizer* normalizer) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (const AddedToken& token : added) {
    if (!wanted(token) || token.content.empty()) continue;
    tokens.push_back(token);
    patterns.push_back(normalizer != nullptr ? normalizer->apply(token.content) : token.content);
  }
  if (tokens.empty()) return nullptr;
  return std::make_unique<AddedTokenFinder>(std::move(tokens), patterns);
}

// The ranges after replace_invalid_utf8(text), borders inside a malformed part moved outwards.
std::vector<TextRange> move_ranges(std::string_view text, std::span<const TextRange> ranges) {
  std::vector<TextRange> out(ranges.begin(), ranges.end());
  size_t before = 0, after = 0, begins = 0, ends = 0;
  while (before < text.size()) {
    const size_t start = before, start_after = after;
    uint32_t code = 0;
    after += decode_utf8(text, &before, &code) ? before - start : 3;
    for (; begins < out.size() && ranges[begins].begin < before; ++begins) {
      out[begins].begin = start_after;
    }
    for (; ends < out.size() && ranges[ends].end <= before; ++ends) {
      out[ends].end = ranges[ends].end == start ? start_after : after;
    }
  }
  for (; begins < out.size(); ++begins) out[begins].begin = after;
  for (; ends < out.size(); ++ends) out[ends].end = after;
  return out;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_pipeline(PipelineParts parts) {
  for (const int32_t id : parts.prefix_ids) {
    if (Status s = check_id(parts, id, "a token before the text"); !s.ok()) return s;
  }
  for (const int32_t id : parts.suffix_ids) {
    if (Status s = check_id(parts, id, "a token after the text"); !s.ok()) return s;
  }
  using Named = std::pair<std::string_view, std::optional<int32_t>>;
  for (const auto& [name, id] :
       {Named{"bos_token", parts.bos_id}, Named{"eos_token", parts.eos_id},
        Named{"unk_token", parts.unk_id}, Named{"pad_token", parts.pad_id}}) {
    if (!id) continue;
    if (Status s = check_id(parts, *id, name); !s.ok()) return s;
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<PipelineTokenizer>(std::move(parts)));
}

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  vocab_size_ = parts_.vocabulary->size();
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    vocab_size_ = std::max(vocab_size_, token.id + 1);
    added_by_id_.emplace(token.id, i);
    added_by_content_.emplace(token.content, token.id);
  }
  const auto raw = [](const AddedToken& token) { return !token.normalized; };
  const auto normalized = [](const AddedToken& token) { return token.normalized; };
  const auto either = [](const AddedToken& token) { return !token.normalized || token.special; };
  const auto both = [](const AddedToken& token) { return token.normalized && token.special; };
  raw_finder_ = make_finder(parts_.added, raw, nullptr);
  normalized_finder_ = make_finder(parts_.added, normalized, parts_.normalizer.get());
  if (std::any_of(parts_.added.begin(), parts_.added.end(), both)) {
    ranges_finder_ = make_finder(parts_.added, either, nullptr);
  }
  collect_end_ids();
}

void PipelineTokenizer::collect_end_ids() {
  constexpr std::string_view kEndNames[] = {
      "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",      "<end_of_turn>",     "<|end|>",
      "<|endoftext|>", "<|end_of_text|>", "<|eot|>",         "<|EOT|>",           "<EOT>",
      "<_EOT>",        "<|return|>",      "<|end_of_turn|>", "<end_of_utterance>"};
  if (parts_.eos_id) end_ids_.push_back(*parts_.eos_id);
  for (const int32_t id : parts_.more_end_ids) end_ids_.push_back(id);
  for (const std::string_view name : kEndNames) {
    const auto found = added_by_content_.find(name);
    if (found != added_by_content_.end() && is_special(found->second)) {
      end_ids_.push_back(found->second);
    }
  }
  std::vector<int32_t> unique;
  for (const int32_t id : end_ids_) {
    const bool known = std::find(unique.begin(), unique.end(), id) != unique.end();
    if (!known && id >= 0 && id < vocab_size_) unique.push_back(id);
  }
  end_ids_ = std::move(unique);
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  uint64_t steps = 0;
  return encode_counted(text, options, &steps);
}

std::vector<int32_t> PipelineTokenizer::encode_counted(std::string_view text,
                                                       const EncodeOptions& options,
                                                       uint64_t* steps) const {
  std::string repaired;
  const std::string_view original = text;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<TextRange> moved;
  std::span<const TextRange> plain = options.plain_ranges;
  if (!repaired.empty() && !plain.empty()) {
    moved = move_ranges(original, plain);
    plain = moved;
  }
  const bool ranges = options.parse_special && !plain.empty() && ranges_finder_ != nullptr;
  const AddedTokenFinder* finder = ranges ? ranges_finder_.get() : raw_finder_.get();
  std::vector<int32_t> out;
  ModelScratch scratch;
  if (text.size() >= kCacheFrom) scratch.cache.enable();
  if (options.add_special_tokens) out = parts_.prefix_ids;
  const auto take = [&](const AddedTokenFinder::Part& part) {
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      encode_plain({part.text, part.text.data() == text.data()}, options.parse_special && !ranges,
                   &scratch, &out);
    }
  };
  if (finder != nullptr) {
    finder->split(text, options.parse_special, plain, take);
  } else if (!text.empty()) {
    take({text, nullptr});
  }
  if (options.add_special_tokens) {
    out.insert(out.end(), parts_.suffix_ids.begin(), parts_.suffix_ids.end());
  }
  *steps += scratch.steps;
  return out;
}

// Text between the tokens that are matched before normalization.
void PipelineTokenizer::encode_plain(const Piece& raw, bool match_special, ModelScratch* scratch,
                                     std::vector<int32_t>* out) const {
  std::string normalized;
  std::string_view text = raw.text;
  if (parts_.normalizer) {
    normalized = parts_.normalizer->apply(text);
    text = normalized;
  }
  const auto to_model = [&](const Piece& piece) { parts_.model->encode(piece.text, scratch, out); };
  const auto take = [&](const AddedTokenFinder::Part& part) {
    if (part.token != nullptr) {
      out->push_back(part.token->id);
      return;
    }
    const Piece piece{part.text, raw.at_start && part.text.data() == text.data()};
    if (parts_.pre_tokenizer) {
      parts_.pre_tokenizer->split(piece, to_model);
    } else {
      to_model(piece);
    }
  };
  if (normalized_finder_) {
    normalized_finder_->split(text, match_special, {}, take);
  } else if (!text.empty()) {
    take({text, nullptr});
  }
}

std::string PipelineTokenizer::decode(const std::vector<int32_t>& ids,
                                      bool skip_special_tokens) const {
  DecodeStream stream(parts_.decoder, parts_.clean_up_spaces);
  std::string out;
  for (const int32_t id : ids) {
    const bool known = parts_.vocabulary->contains(id) || added_by_id_.contains(id);
    if (!known || (skip_special_tokens && is_special(id))) continue;
    stream.push(piece(id), &out);
  }
  stream.finish(&out);
  return out;
}

std::unique_ptr<DecodeStream> PipelineTokenizer::decode_stream() const {
  return std::make_unique<DecodeStream>(parts_.decoder, parts_.clean_up_spaces);
}

std::string_view PipelineTokenizer::piece(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() ? std::string_view(parts_.added[added->second].content)
                                     : parts_.vocabulary->piece(id);
}

std::optional<int32_t> PipelineTokenizer::find(std::string_view piece) const {
  const auto added = added_by_content_.find(piece);
  if (added != added_by_content_.end()) return added->second;
  const int32_t id = parts_.vocabulary->find(piece);
  return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const auto added = added_by_id_.find(id);
  return added != added_by_id_.end() && parts_.added[added->second].special;
}

bool PipelineTokenizer::adds_bos() const {
  return parts_.bos_id && !parts_.prefix_ids.empty() && parts_.prefix_ids.front() == *parts_.bos_id;
}

}  // namespace pelton::text
