#include <algorithm>
#include <cmath>
#include <vector>

#include "sampling/mass.h"
#include "sampling/stages.h"

namespace pelton::sampling {

void apply_min_p(SamplerScratch& scratch, float p) {
  float best = scratch.candidates.front().logit;
  for (const Candidate& candidate : scratch.candidates) best = std::max(best, candidate.logit);
  const double least = static_cast<double>(best) + std::log(static_cast<double>(p));
  keep_if(scratch.candidates, [&](const Candidate& candidate) {
    return static_cast<double>(candidate.logit) >= least;
  });
}

}  // namespace pelton::sampling
