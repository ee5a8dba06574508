#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/unicode.h"

namespace pelton::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

Result<std::unique_ptr<Model>> UnigramModel::create(const Vocabulary& vocabulary,
                                                    const std::vector<double>& scores,
                                                    const std::vector<bool>& usable,
                                                    const UnigramOptions& options) {
  if (options.unk_id < 0 || !vocabulary.contains(options.unk_id)) {
    return data_loss("a unigram model needs an unknown token (unk_id)");
  }
  std::unique_ptr<UnigramModel> model(new UnigramModel(vocabulary, options));
  double lowest = 0.0;
  bool any = false;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      return data_loss(fmt::format("the score of token {} is not finite", id));
    }
    lowest = any ? std::min(lowest, scores[id]) : scores[id];
    any = true;
    const std::string_view piece = vocabulary.piece(id);
    if (usable[id] && !piece.empty() && !vocabulary.is_control(id)) model->insert(piece, id);
  }
  model->scores_ = scores;
  model->unknown_score_ = lowest - kUnknownPenalty;
  for (int b = 0; b < 256; ++b) {
    model->byte_ids_[b] = vocabulary.find(byte_token(static_cast<uint8_t>(b)));
  }
  return std::unique_ptr<Model>(std::move(model));
}

void UnigramModel::insert(std::string_view piece, int32_t id) {
  int32_t node = 0;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    const uint64_t key = PairIndex::key(node, byte);
    const PairIndex::Value* edge = edges_.find(key);
    if (edge != nullptr) {
      node = edge->id;
      continue;
    }
    const auto next = static_cast<int32_t>(node_ids_.size());
    node_ids_.push_back(-1);
    edges_.insert(key, {0, next});
    if (node == 0) roots_[byte] = next;
    node = next;
  }
  // The last of two equal tokens counts, as in the reference's map.
  node_ids_[node] = id;
}

// Offers every token that starts at `begin` to the best paths.
void UnigramModel::relax(std::string_view piece, size_t begin, ModelScratch* scratch) const {
  auto& path = scratch->path;
  const double so_far = path[begin].score;
  const size_t one = char_at(piece, begin).length;
  const auto offer = [&](size_t end, double score, int32_t id) {
    auto& node = path[end];
    if (node.begin >= 0 && score <= node.score) return;
    node = {score, id, static_cast<int32_t>(begin)};
  };
  bool single = false;
  int32_t node = roots_[static_cast<uint8_t>(piece[begin])];
  for (size_t end = begin + 1; node != 0; ++end) {
    ++scratch->steps;
    if (node_ids_[node] >= 0) {
      offer(end, scores_[node_ids_[node]] + so_far, node_ids_[node]);
      single = single || end - begin == one;
    }
    if (end == piece.size()) break;
    const PairIndex::Value* edge =
        edges_.find(PairIndex::key(node, static_cast<uint8_t>(piece[end])));
    node = edge != nullptr ? edge->id : 0;
  }
  if (!single) offer(begin + one, unknown_score_ + so_far, options_.unk_id);
}

void UnigramModel::emit_unknown(std::string_view text, std::vector<int32_t>* out) const {
  // Unknown characters side by side may spell a token, which the reference then takes.
  if (const int32_t id = vocabulary_.find_text(text); id >= 0) return out->push_back(id);
  const bool bytes = options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                       return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                     });
  if (!bytes) {
    out->push_back(options_.unk_id);
    return;
  }
  for (const char c : text) out->push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

void UnigramModel::encode(std::string_view piece, ModelScratch* scratch,
                          std::vector<int32_t>* out) const {
  auto& path = scratch->path;
  path.assign(piece.size() + 1, {0.0, -1, -1});
  for (size_t pos = 0; pos < piece.size(); pos += char_at(piece, pos).length) {
    relax(piece, pos, scratch);
  }
  // Backwards along the best path; neighbouring unknown characters make one unknown token.
  auto& spans = scratch->symbols;
  spans.clear();
  for (auto end = static_cast<int32_t>(piece.size()); end > 0;) {
    const auto& node = path[end];
    const auto begin = static_cast<uint32_t>(node.begin);
    const auto length = static_cast<uint32_t>(end - node.begin);
    if (node.id == options_.unk_id && !spans.empty() && spans.back().id == options_.unk_id) {
      spans.back().begin = begin;
      spans.back().length += length;
    } else {
      spans.push_back({node.id, begin, length, -1, -1});
    }
    end = node.begin;
  }
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->id == options_.unk_id) {
      emit_unknown(piece.substr(span->begin, span->length), out);
    } else {
      out->push_back(span->id);
    }
  }
}

}  // namespace pelton::text
