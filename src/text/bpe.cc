#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "text/unicode.h"

namespace pelton::text {
namespace {

constexpr uint32_t kNever = UINT32_MAX;
constexpr size_t kScanLimit = 24;                    // symbols; above it a heap is used
constexpr std::string_view kBlank = "\xE2\x96\x81";  // ▁

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, BpeOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  byte_ids_.fill(-1);
}

Result<std::unique_ptr<Model>> BpeModel::from_merges(const Vocabulary& vocabulary,
                                                     const std::vector<BpeMerge>& merges,
                                                     BpeOptions options) {
  if (merges.size() > static_cast<size_t>(kMaxMerges)) {
    return data_loss(fmt::format("{} merges, at most {} are allowed", merges.size(), kMaxMerges));
  }
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(options)));
  model->merges_ = PairIndex(merges.size());
  const size_t prefix = model->options_.continuing_subword_prefix.size();
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (right.size() < prefix) {
      return data_loss(fmt::format("merge {}: \"{}\" lacks the subword prefix", rank, right));
    }
    joined.assign(left).append(right.substr(prefix));
    const int32_t left_id = vocabulary.find(left), right_id = vocabulary.find(right),
                  joined_id = vocabulary.find(joined);
    if (left_id < 0 || right_id < 0 || joined_id < 0) {
      const std::string_view missing = left_id < 0 ? left : right_id < 0 ? right : joined;
      return data_loss(
          fmt::format("merge {}: token \"{}\" is not in the vocabulary", rank, missing));
    }
    if (vocabulary.is_control(joined_id)) continue;
    model->merges_.assign(PairIndex::key(left_id, right_id),
                          {static_cast<uint32_t>(rank), joined_id});
  }
  if (Status s = model->prepare_bytes(); !s.ok()) return s;
  model->find_boundaries();
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::unique_ptr<Model>> BpeModel::from_scores(const Vocabulary& vocabulary,
                                                     const std::vector<double>& scores,
                                                     const std::vector<bool>& mergeable,
                                                     BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary, std::move(options)));
  const size_t size = static_cast<size_t>(vocabulary.size());
  if (scores.size() != size || mergeable.size() != size) {
    return data_loss(fmt::format("{} scores for {} tokens", scores.size(), size));
  }
  for (size_t id = 0; id < size; ++id) {
    if (!std::isfinite(scores[id])) {
      return data_loss(fmt::format("the score of token {} is not finite", id));
    }
  }
  std::vector<int32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  model->score_rank_.assign(size, kNever);
  uint32_t rank = 0;
  for (size_t i = 0; i < size; ++i) {
    // Equal scores share a rank: between them the leftmost pair wins.
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    if (mergeable[order[i]]) model->score_rank_[order[i]] = rank;
  }
  if (Status s = model->prepare_bytes(); !s.ok()) return s;
  model->find_boundaries();
  return std::unique_ptr<Model>(std::move(model));
}

Status BpeModel::prepare_bytes() {
  for (int b = 0; b < 256; ++b) {
    const auto byte = static_cast<uint8_t>(b);
    if (options_.byte_level) {
      const char raw = static_cast<char>(byte);
      byte_ids_[b] = vocabulary_.find(bytes_to_alphabet({&raw, 1}));
    } else if (options_.byte_fallback) {
      byte_ids_[b] = vocabulary_.find(byte_token(byte));
    }
  }
  if (!options_.byte_level || (!options_.ignore_merges && score_rank_.empty())) return {};
  const int32_t size = vocabulary_.size();
  raw_pieces_.reserve(size);
  raw_index_ = StringIndex(size);
  for (int32_t id = 0; id < size; ++id) {
    auto raw = alphabet_to_bytes(vocabulary_.piece(id));
    if (!raw || raw->empty() || vocabulary_.find_text(vocabulary_.piece(id)) != id) {
      continue;
    }
    raw_pieces_.push_back(std::move(*raw));
    raw_index_.insert(raw_pieces_.back(), id);
  }
  return {};
}

void BpeModel::find_boundaries() {
  const bool spelled = !options_.continuing_subword_prefix.empty() ||
                       !options_.end_of_word_suffix.empty() || options_.ignore_merges;
  if (options_.byte_level || spelled || vocabulary_.find(kBlank) < 0) return;
  std::vector<uint32_t> glued;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view piece = vocabulary_.piece(id);
    for (size_t at = piece.find(kBlank, 1); at < piece.size(); at = piece.find(kBlank, at + 1)) {
      glued.push_back(char_before(piece, at).code);
    }
  }
  std::sort(glued.begin(), glued.end());
  glued.erase(std::unique(glued.begin(), glued.end()), glued.end());
  glued_ = std::move(glued);
}

bool BpeModel::may_cut(std::string_view piece, size_t pos) const {
  return !std::binary_search(glued_->begin(), glued_->end(), char_before(piece, pos).code);
}

void BpeModel::encode(std::string_view piece, ModelScratch* scratch,
                      std::vector<int32_t>* out) const {
  size_t begin = 0;
  if (glued_) {
    for (size_t at = piece.find(kBlank, 1); at < piece.size(); at = piece.find(kBlank, at + 1)) {
      if (!may_cut(piece, at)) continue;
      encode_part(piece.substr(begin, at - begin), scratch, out);
      begin = at;
    }
  }
  encode_part(piece.substr(begin), scratch, out);
}

void BpeModel::encode_part(std::string_view piece, ModelScratch* scratch,
                           std::vector<int32_t>* out) const {
  if (!scratch->cache.usable(piece)) return encode_uncached(piece, scratch, out);
  const uint64_t hash = hash_bytes(piece, 0);
  if (scratch->cache.lookup(piece, hash, out)) {
    ++scratch->steps;
    return;
  }
  const size_t before = out->size();
  encode_uncached(piece, scratch, out);
  scratch->cache.store(piece, hash, std::span(*out).subspan(before));
}

void BpeModel::encode_uncached(std::string_view piece, ModelScratch* scratch,
                               std::vector<int32_t>* out) const {
  if (options_.ignore_merges) {
    const int32_t id = options_.byte_level ? raw_index_.find(piece) : vocabulary_.find_text(piece);
    if (id >= 0) {
      out->push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch->symbols;
  symbols.clear();
  make_symbols(piece, &symbols);
  scratch->steps += symbols.size();
  if (symbols.size() > kScanLimit) {
    merge_by_heap(piece, scratch);
  } else {
    merge_by_scan(piece, scratch);
  }
  emit(piece, symbols, out);
}

// Byte tokens for every byte of `text`, or nothing when one is missing.
bool BpeModel::push_fallback(std::string_view text, uint32_t begin,
                             std::vector<Symbol>* symbols) const {
  for (const char c : text) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) {
    symbols->push_back({byte_ids_[static_cast<uint8_t>(c)], begin++, 1, -1, -1});
  }
  return true;
}

void BpeModel::make_symbols(std::string_view piece, std::vector<Symbol>* symbols) const {
  const bool plain =
      options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  Symbol unknown{-1, 0, 0, -1, -1};  // waits, when its length is not 0, for what follows it
  std::string spelled;
  for (uint32_t pos = 0; pos < piece.size();) {
    const uint32_t length = options_.byte_level ? 1 : char_at(piece, pos).length;
    std::string_view text = piece.substr(pos, length);
    int32_t id;
    if (options_.byte_level) {
      id = byte_ids_[static_cast<uint8_t>(piece[pos])];
    } else {
      if (!plain) {
        spelled = pos > 0 ? options_.continuing_subword_prefix : std::string();
        spelled.append(text);
        if (pos + length == piece.size()) spelled += options_.end_of_word_suffix;
        text = spelled;
      }
      id = vocabulary_.find_text(text);
    }
    if (id >= 0 || !score_rank_.empty()) {
      if (unknown.length > 0) symbols->push_back(unknown);
      unknown.length = 0;
      symbols->push_back({id, pos, length, -1, -1});
    } else if (options_.byte_fallback && push_fallback(text, pos, symbols)) {
      // The bytes stand before an unknown token that still waits, as in the reference.
    } else if (options_.unk_id >= 0) {
      if (unknown.length > 0 && options_.fuse_unk) {
        unknown.length += length;
      } else {
        if (unknown.length > 0) symbols->push_back(unknown);
        unknown = {options_.unk_id, pos, length, -1, -1};
      }
    }
    pos += length;
  }
  if (unknown.length > 0) symbols->push_back(unknown);
}

BpeModel::Merge BpeModel::find_merge(std::string_view piece, const Symbol& left,
                                     const Symbol& right) const {
  if (score_rank_.empty()) {
    const PairIndex::Value* found = merges_.find(PairIndex::key(left.id, right.id));
    return found != nullptr ? Merge{found->rank, found->id} : Merge{kNever, -1};
  }
  if (left.length + right.length > vocabulary_.longest()) return {kNever, -1};
  const std::string_view joined = piece.substr(left.begin, left.length + right.length);
  const int32_t id = options_.byte_level ? raw_index_.find(joined) : vocabulary_.find(joined);
  if (id < 0 || score_rank_[id] == kNever) return {kNever, -1};
  return {score_rank_[id], id};
}

void BpeModel::merge_by_scan(std::string_view piece, ModelScratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  std::array<Merge, kScanLimit> merges;
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find_merge(piece, symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNever) break;
    symbols[best].id = merges[best].id;
    symbols[best].length += symbols[best + 1].length;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best + 1 < count) merges[best] = find_merge(piece, symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find_merge(piece, symbols[best - 1], symbols[best]);
    ++scratch->steps;
  }
  symbols.resize(count);
}

void BpeModel::push_candidate(std::string_view piece, int32_t left, ModelScratch* scratch) const {
  const Symbol& a = scratch->symbols[left];
  if (a.next < 0) return;
  const Symbol& b = scratch->symbols[a.next];
  const Merge merge = find_merge(piece, a, b);
  if (merge.rank == kNever) return;
  scratch->heap.push_back({merge.rank, static_cast<uint32_t>(left), a.length + b.length, merge.id});
}

void BpeModel::merge_by_heap(std::string_view piece, ModelScratch* scratch) const {
  std::vector<Symbol>& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const auto later = [](const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].prev = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  heap.clear();
  for (int32_t i = 0; i < count; ++i) push_candidate(piece, i, scratch);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto offer = [&](int32_t left) {
    const size_t before = heap.size();
    push_candidate(piece, left, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const ModelScratch::Candidate top = heap.back();
    heap.pop_back();
    ++scratch->steps;
    Symbol& left = symbols[top.left];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.length + right.length != top.length) continue;  // one of them has grown since
    left.id = top.id;
    left.length = top.length;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].prev = static_cast<int32_t>(top.left);
    if (left.prev >= 0) offer(left.prev);
    offer(static_cast<int32_t>(top.left));
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

void BpeModel::emit(std::string_view piece, const std::vector<Symbol>& symbols,
                    std::vector<int32_t>* out) const {
  bool after_unknown = false;
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) {
      out->push_back(symbol.id);
      after_unknown = false;
      continue;
    }
    // Only by scores: a character that is no token.
    bool bytes = options_.byte_fallback;
    for (uint32_t i = 0; bytes && i < symbol.length; ++i) {
      bytes = byte_ids_[static_cast<uint8_t>(piece[symbol.begin + i])] >= 0;
    }
    if (bytes) {
      for (uint32_t i = 0; i < symbol.length; ++i) {
        out->push_back(byte_ids_[static_cast<uint8_t>(piece[symbol.begin + i])]);
      }
    } else if (options_.unk_id >= 0 && !(options_.fuse_unk && after_unknown)) {
      out->push_back(options_.unk_id);
    }
    after_unknown = !bytes;
  }
}

}  // namespace pelton::text
