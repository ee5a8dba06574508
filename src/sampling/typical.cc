#include <cmath>

#include "sampling/mass.h"
#include "sampling/row.h"
#include "sampling/stages.h"

namespace pelton::sampling {

// With probabilities w / Z and ln p = logit - ln Z, the distance of the information content -ln p
// from the entropy H = ln Z - mean(logit) is |mean(logit) - logit|: Z cancels.
void apply_typical(SamplerScratch& scratch, float p) {
  double mean = 0.0;
  for (const Candidate& candidate : scratch.candidates) {
    mean += static_cast<double>(candidate.weight) * static_cast<double>(candidate.logit);
  }
  mean /= static_cast<double>(total_weight(scratch.candidates));
  const auto key = [mean](const Candidate& candidate) {
    return static_cast<float>(std::abs(mean - static_cast<double>(candidate.logit)));
  };
  keep_mass(scratch.candidates, p, key, scratch.selection);
}

}  // namespace pelton::sampling
