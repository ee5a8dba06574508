#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace pelton::text {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens,
                                   const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)), nodes_(1), root_edges_(256, 0) {
  std::vector<int32_t> parent{-1};
  std::vector<uint8_t> label{0};
  std::vector<int32_t> depth{0};
  for (size_t i = 0; i < tokens_.size(); ++i) {
    int32_t node = 0;
    for (auto it = patterns[i].rbegin(); it != patterns[i].rend(); ++it) {
      const auto byte = static_cast<uint8_t>(*it);
      int32_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        nodes_.emplace_back();
        parent.push_back(node);
        label.push_back(byte);
        depth.push_back(depth[node] + 1);
        edges_.insert(PairIndex::key(node, byte), {0, next});
        if (node == 0) root_edges_[byte] = next;
      }
      node = next;
    }
    if (node != 0 && nodes_[node].token < 0) {
      nodes_[node].token = static_cast<int32_t>(i);
      nodes_[node].length = static_cast<int32_t>(patterns[i].size());
    }
  }
  // Failure links, level by level.
  std::vector<int32_t> order(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return depth[a] < depth[b]; });
  for (const int32_t node : order) {
    if (depth[node] < 2) continue;
    int32_t state = nodes_[parent[node]].fail;
    int32_t next = child(state, label[node]);
    while (next < 0 && state != 0) {
      state = nodes_[state].fail;
      next = child(state, label[node]);
    }
    nodes_[node].fail = std::max(next, 0);
    if (nodes_[node].token < 0) {
      const Node& shorter = nodes_[nodes_[node].fail];
      nodes_[node].token = shorter.token;
      nodes_[node].length = shorter.length;
    }
  }
}

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_edges_[byte] != 0 ? root_edges_[byte] : -1;
  const PairIndex::Value* found = edges_.find(PairIndex::key(node, byte));
  return found != nullptr ? found->id : -1;
}

// The longest token starting at each place where one starts, in order.
std::vector<AddedTokenFinder::Found> AddedTokenFinder::find_all(std::string_view text) const {
  std::vector<Found> found;
  int32_t state = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    int32_t next = child(state, byte);
    while (next < 0 && state != 0) {
      state = nodes_[state].fail;
      next = child(state, byte);
    }
    state = std::max(next, 0);
    if (nodes_[state].token >= 0) found.push_back({i, nodes_[state].token, nodes_[state].length});
  }
  std::reverse(found.begin(), found.end());
  return found;
}

namespace {

bool word_before(std::string_view text, size_t pos) {
  return pos > 0 && (char_bits(char_before(text, pos).code) & kWord) != 0;
}
bool word_after(std::string_view text, size_t pos) {
  return pos < text.size() && (char_bits(char_at(text, pos).code) & kWord) != 0;
}
size_t skip_spaces_before(std::string_view text, size_t pos, size_t limit) {
  while (pos > limit && pos > 0) {
    const Char c = char_before(text, pos);
    if (!(char_bits(c.code) & kSpace)) break;
    pos -= c.length;
  }
  return std::max(pos, limit);
}
size_t skip_spaces_after(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Char c = char_at(text, pos);
    if (!(char_bits(c.code) & kSpace)) break;
    pos += c.length;
  }
  return pos;
}

}  // namespace

void AddedTokenFinder::split(std::string_view text, bool parse_special,
                             std::span<const TextRange> plain,
                             FunctionRef<void(const Part&)> sink) const {
  size_t done = 0;   // everything before is given out
  size_t ready = 0;  // where the next match may begin
  const auto starts_at = [&](size_t pos) {
    return pos == text.size() || (static_cast<uint8_t>(text[pos]) & 0xC0) != 0x80;
  };
  const auto touches = [&](size_t begin, size_t end) {
    while (!plain.empty() && plain.front().end <= begin) plain = plain.subspan(1);
    return !plain.empty() && plain.front().begin < end && plain.front().end > plain.front().begin;
  };
  for (const Found& match : tokens_.empty() ? std::vector<Found>() : find_all(text)) {
    if (match.begin < ready) continue;
    const AddedToken& token = tokens_[match.token];
    size_t begin = match.begin, end = begin + match.length;
    if (token.special && touches(begin, end)) continue;
    ready = end;
    if (!starts_at(begin) || !starts_at(end)) continue;
    if (token.special && !parse_special) continue;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    // A token inside white space that the one before took counts too, as in the reference.
    if (token.lstrip)
      begin = std::min(std::max(skip_spaces_before(text, begin, std::min(begin, done)), done), end);
    if (token.rstrip) end = skip_spaces_after(text, end);
    if (begin > done) sink({text.substr(done, begin - done), nullptr});
    sink({text.substr(begin, end - begin), &token});
    done = end;
  }
  if (done < text.size()) sink({text.substr(done), nullptr});
}

}  // namespace pelton::text
