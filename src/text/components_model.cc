// The "model" component of a tokenizer.json document.
#include <fmt/format.h>

#include "text/bpe.h"
#include "text/components.h"
#include "text/unigram.h"
#include "text/word_piece.h"

namespace pelton::text {
namespace {

// {"token": id, ...}
Status read_vocabulary(const JsonValue& model, PipelineParts* parts) {
  const auto vocab = model.get("vocab");
  simdjson::dom::object object;
  if (!vocab || vocab->element().get(object) != simdjson::SUCCESS) {
    return model.error_at("vocab", "expected an object");
  }
  parts->vocabulary = std::make_unique<Vocabulary>(object.size());
  for (const auto [token, value] : object) {
    int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS) {
      return model.error_at("vocab", fmt::format("the id of \"{}\" is not an integer", token));
    }
    if (Status s = parts->vocabulary->add(std::string(token), id); !s.ok()) {
      return s.with_context(vocab->path());
    }
  }
  return {};
}

// Marks control tokens, once the ids are known.
void finish_vocabulary(PipelineParts* parts) {
  parts->vocabulary->finish();
  for (const AddedToken& token : parts->added) {
    const int32_t id = parts->vocabulary->find(token.content);
    if (token.special && id >= 0) parts->vocabulary->mark_control(id);
  }
}

// The id of the token named under `key`; -1 when there is none and it is not `needed`.
Result<int32_t> read_unknown(const JsonValue& model, const Vocabulary& vocabulary, bool needed) {
  if (!needed && !model.get("unk_token")) return -1;
  auto name = model.string("unk_token");
  if (!name.ok()) return name.status();
  const int32_t id = vocabulary.find(*name);
  if (id < 0) {
    return model.error_at("unk_token", fmt::format("\"{}\" is not in the vocabulary", *name));
  }
  return id;
}

// "a b" or ["a", "b"].
Result<std::vector<BpeMerge>> read_merges(const JsonValue& model) {
  auto items = model.get("merges");
  simdjson::dom::array array;
  if (!items || items->element().get(array) != simdjson::SUCCESS) {
    return model.error_at("merges", "expected an array");
  }
  std::vector<BpeMerge> merges;
  for (const simdjson::dom::element item : array) {
    const auto bad = [&] {
      return items->error(fmt::format("entry {} is not a pair of tokens", merges.size()));
    };
    std::string_view text;
    if (item.get(text) == simdjson::SUCCESS) {
      const size_t cut = text.find(' ');
      if (cut == std::string_view::npos || text.find(' ', cut + 1) != std::string_view::npos) {
        return bad();
      }
      merges.push_back({text.substr(0, cut), text.substr(cut + 1)});
      continue;
    }
    simdjson::dom::array pair;
    BpeMerge merge;
    if (item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(merge.left) != simdjson::SUCCESS ||
        pair.at(1).get(merge.right) != simdjson::SUCCESS) {
      return bad();
    }
    merges.push_back(merge);
  }
  return merges;
}

Status read_bpe(const JsonValue& model, bool byte_level, PipelineParts* parts) {
  double dropout = 0.0;
  if (const auto value = model.get("dropout");
      value && (value->element().get(dropout) != simdjson::SUCCESS || dropout != 0.0)) {
    return unsupported("model.dropout: random merges are not supported");
  }
  if (Status s = read_vocabulary(model, parts); !s.ok()) return s;
  finish_vocabulary(parts);
  BpeOptions options;
  auto fallback = model.boolean("byte_fallback", false);
  auto ignore_merges = model.boolean("ignore_merges", false);
  auto fuse = model.boolean("fuse_unk", false);
  auto prefix = model.string_or("continuing_subword_prefix", "");
  auto suffix = model.string_or("end_of_word_suffix", "");
  auto unknown = read_unknown(model, *parts->vocabulary, false);
  for (const Status& s : {fallback.status(), ignore_merges.status(), fuse.status(), prefix.status(),
                          suffix.status(), unknown.status()}) {
    if (!s.ok()) return s;
  }
  options.byte_fallback = *fallback;
  options.ignore_merges = *ignore_merges;
  options.fuse_unk = *fuse;
  options.continuing_subword_prefix = *prefix;
  options.end_of_word_suffix = *suffix;
  options.unk_id = *unknown;
  options.byte_level = byte_level;
  auto merges = read_merges(model);
  if (!merges.ok()) return merges.status();
  auto made = BpeModel::from_merges(*parts->vocabulary, *merges, std::move(options));
  if (!made.ok()) return made.status().with_context("model.merges");
  parts->model = std::move(*made);
  return {};
}

// [["token", score], ...]
Status read_unigram(const JsonValue& model, PipelineParts* parts) {
  auto items = model.items("vocab");
  if (!items.ok()) return items.status();
  parts->vocabulary = std::make_unique<Vocabulary>(items->size());
  std::vector<double> scores;
  for (const JsonValue& item : *items) {
    simdjson::dom::array pair;
    std::string_view token;
    double score = 0.0;
    if (item.element().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(token) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS) {
      return item.error("expected a token and its score");
    }
    if (Status s = parts->vocabulary->add(std::string(token), scores.size()); !s.ok()) {
      return s.with_context(item.path());
    }
    scores.push_back(score);
  }
  finish_vocabulary(parts);
  auto unknown = model.integer("unk_id");
  if (!unknown.ok()) return unknown.status();
  if (*unknown < 0 || *unknown >= parts->vocabulary->size()) {
    return model.error_at("unk_id", "outside the vocabulary");
  }
  auto fallback = model.boolean("byte_fallback", false);
  if (!fallback.ok()) return fallback.status();
  const std::vector<bool> usable(scores.size(), true);
  auto made = UnigramModel::create(*parts->vocabulary, scores, usable,
                                   {static_cast<int32_t>(*unknown), *fallback});
  if (!made.ok()) return made.status().with_context("model");
  parts->model = std::move(*made);
  return {};
}

Status read_words(const JsonValue& model, bool pieces, PipelineParts* parts) {
  if (Status s = read_vocabulary(model, parts); !s.ok()) return s;
  finish_vocabulary(parts);
  auto unknown = read_unknown(model, *parts->vocabulary, true);
  if (!unknown.ok()) return unknown.status();
  if (!pieces) {
    parts->model = word_level_model(*parts->vocabulary, *unknown);
    return {};
  }
  auto prefix = model.string_or("continuing_subword_prefix", "##");
  if (!prefix.ok()) return prefix.status();
  int64_t longest = 100;
  if (model.get("max_input_chars_per_word")) {
    auto value = model.integer("max_input_chars_per_word");
    if (!value.ok()) return value.status();
    longest = *value;
  }
  if (longest < 1 || longest > 4096) {
    return model.error_at("max_input_chars_per_word", "expected 1 to 4096");
  }
  parts->model = word_piece_model(*parts->vocabulary, {*unknown, *prefix, longest});
  return {};
}

}  // namespace

Status read_model(const JsonValue& value, bool byte_level, PipelineParts* parts) {
  std::string type;
  if (value.get("type")) {
    auto name = value.string("type");
    if (!name.ok()) return name.status();
    type = *name;
  } else {
    // Older documents leave the type out; the keys tell.
    type = value.get("merges") ? "BPE" : value.get("unk_id") ? "Unigram" : "";
  }
  if (type == "BPE") return read_bpe(value, byte_level, parts);
  if (type == "Unigram") return read_unigram(value, parts);
  if (type == "WordPiece") return read_words(value, true, parts);
  if (type == "WordLevel") return read_words(value, false, parts);
  return unsupported(fmt::format("model: unknown type \"{}\"", type));
}

}  // namespace pelton::text
