#include "sampling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sampling/row.h"

namespace pelton::sampling {

BeamSearch::BeamSearch(const SamplingParams& params, std::vector<int32_t> end_ids,
                       int32_t max_tokens)
    : params_(params), end_ids_(std::move(end_ids)), max_tokens_(max_tokens), live_(1) {
  check(max_tokens >= 1 && params.num_beams >= 1, "beam search needs a beam and a token");
}

bool BeamSearch::is_end(int32_t token) const {
  return std::ranges::find(end_ids_, token) != end_ids_.end();
}

float BeamSearch::score(float sum, int32_t length) const {
  return static_cast<float>(
      static_cast<double>(sum) /
      std::pow(static_cast<double>(length), static_cast<double>(params_.length_penalty)));
}

// Fills extensions_ with the best (1 + end ids) * num_beams continuations of all live beams: with
// so many, num_beams of them do not end here.
Status BeamSearch::collect(std::span<const std::span<float>> logits) {
  check(logits.size() == live_.size(), "one row of logits for each live beam");
  const auto keep =
      static_cast<size_t>(params_.num_beams) * std::max<size_t>(2, 1 + end_ids_.size());
  const auto length = static_cast<int32_t>(live_.front().tokens.size());
  const bool may_end = length >= params_.min_tokens;
  extensions_.clear();
  for (size_t beam = 0; beam < live_.size(); ++beam) {
    const RowScan scan = scan_row(logits[beam]);
    if (!scan.has_distribution) {
      return internal_error("the model's logits hold NaN or infinity, or are all -infinity");
    }
    const double log_sum = log_sum_exp(logits[beam], scan.max);
    const size_t spare = may_end ? 0 : end_ids_.size();
    const size_t row_keep = std::min(keep + spare, logits[beam].size());
    select_top_k(logits[beam], static_cast<int32_t>(row_keep), selection_);
    for (const Candidate& candidate : selection_) {
      if (!may_end && is_end(candidate.token)) continue;
      const auto logprob = static_cast<float>(static_cast<double>(candidate.logit) -
                                              static_cast<double>(scan.max) - log_sum);
      extensions_.push_back(
          {live_[beam].sum + logprob, static_cast<int32_t>(beam), candidate.token});
    }
  }
  std::ranges::sort(extensions_, [](const Extension& a, const Extension& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  });
  if (extensions_.size() > keep) extensions_.resize(keep);
  return {};
}

void BeamSearch::add_finished(const Extension& extension) {
  BeamHypothesis hypothesis{live_[static_cast<size_t>(extension.parent)].tokens, 0.0f};
  hypothesis.tokens.push_back(extension.token);
  hypothesis.score = score(extension.sum, static_cast<int32_t>(hypothesis.tokens.size()));
  const auto place = std::ranges::find_if(
      finished_, [&](const BeamHypothesis& other) { return other.score < hypothesis.score; });
  finished_.insert(place, std::move(hypothesis));
  if (finished_.size() > static_cast<size_t>(params_.num_beams)) finished_.pop_back();
}

// Could the best live beam still displace the worst of a full list of finished ones? `length` is
// that of the live beams.
bool BeamSearch::can_improve(float best_sum, int32_t length) const {
  if (finished_.size() < static_cast<size_t>(params_.num_beams)) return true;
  if (params_.early_stopping == EarlyStopping::kTrue) return false;
  const bool grows =
      params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0.0f;
  return score(best_sum, grows ? max_tokens_ : length) > finished_.back().score;
}

Result<BeamSearch::Step> BeamSearch::advance(std::span<const std::span<float>> logits) {
  if (Status s = collect(logits); !s.ok()) return s;
  const auto length = static_cast<int32_t>(live_.front().tokens.size()) + 1;
  const bool last = length >= max_tokens_;
  const auto width = static_cast<size_t>(params_.num_beams);

  // Only the first num_beams may finish; the rest are there to keep the beam full.
  for (size_t i = 0; i < std::min(width, extensions_.size()); ++i) {
    if (last || is_end(extensions_[i].token)) add_finished(extensions_[i]);
  }
  std::erase_if(extensions_,
                [&](const Extension& extension) { return last || is_end(extension.token); });
  if (extensions_.size() > width) extensions_.resize(width);

  Step step;
  std::vector<Beam> next;
  next.reserve(extensions_.size());
  for (const Extension& extension : extensions_) {
    Beam beam{live_[static_cast<size_t>(extension.parent)].tokens, extension.sum};
    beam.tokens.push_back(extension.token);
    next.push_back(std::move(beam));
    step.parents.push_back(extension.parent);
    step.tokens.push_back(extension.token);
  }
  live_ = std::move(next);
  step.done = live_.empty() || !can_improve(live_.front().sum, length);
  if (step.done) {
    step.parents.clear();
    step.tokens.clear();
  }
  return step;
}

std::span<const int32_t> BeamSearch::live_tokens(int32_t beam) const {
  return live_[static_cast<size_t>(beam)].tokens;
}

std::vector<BeamHypothesis> BeamSearch::finish(int32_t n) const {
  std::vector<BeamHypothesis> result = finished_;
  for (const Beam& beam : live_) {
    if (beam.tokens.empty() || result.size() >= static_cast<size_t>(params_.num_beams)) break;
    result.push_back({beam.tokens, score(beam.sum, static_cast<int32_t>(beam.tokens.size()))});
  }
  if (result.size() > static_cast<size_t>(n)) result.resize(static_cast<size_t>(n));
  return result;
}

}  // namespace pelton::sampling
