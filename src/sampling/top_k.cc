#include <algorithm>
#include <limits>

#include "sampling/mass.h"
#include "sampling/row.h"
#include "sampling/stages.h"

namespace pelton::sampling {
namespace {

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Keeps the best k of `out` and returns the logit that a later token must exceed to displace one.
float cut(std::vector<Candidate>& out, size_t k) {
  std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k - 1), out.end(),
                   better);
  out.resize(k);
  return out.back().logit;
}

}  // namespace

// Collects what exceeds a threshold; whenever twice the need has gathered, the best k set a higher
// threshold. On rows in random order few tokens pass, so the time is that of one scan.
void select_top_k(std::span<const float> logits, int32_t k, std::vector<Candidate>& out) {
  constexpr size_t kBlock = 16;
  out.clear();
  if (k <= 0) return;
  const size_t want = std::min(static_cast<size_t>(k), logits.size());
  const size_t full = std::max<size_t>(2 * want, want + 256);
  float threshold = -std::numeric_limits<float>::infinity();
  const auto take = [&](size_t i) {
    if (logits[i] > threshold) {
      out.push_back({logits[i], static_cast<int32_t>(i), 0});
      if (out.size() >= full) threshold = cut(out, want);
    }
  };
  const size_t whole = logits.size() / kBlock * kBlock;
  for (size_t i = 0; i < whole; i += kBlock) {
    int32_t any = 0;
    for (size_t j = 0; j < kBlock; ++j) any |= logits[i + j] > threshold ? 1 : 0;
    if (any == 0) continue;
    for (size_t j = 0; j < kBlock; ++j) take(i + j);
  }
  for (size_t i = whole; i < logits.size(); ++i) take(i);
  if (out.size() > want) cut(out, want);
}

void select_candidates(std::span<const float> logits, int32_t k, SamplerScratch& scratch) {
  std::vector<Candidate>& candidates = scratch.candidates;
  if (k > 0 && static_cast<size_t>(k) < logits.size()) {
    select_top_k(logits, k, candidates);
    std::ranges::sort(candidates, {}, &Candidate::token);
    set_weights(candidates);
    keep_if(candidates, [](const Candidate& candidate) { return candidate.weight > 0; });
  } else {
    select_weighty(logits, candidates);
  }
}

}  // namespace pelton::sampling
