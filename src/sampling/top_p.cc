#include "sampling/mass.h"
#include "sampling/stages.h"

namespace pelton::sampling {

void apply_top_p(SamplerScratch& scratch, float p) {
  keep_mass(
      scratch.candidates, p, [](const Candidate& candidate) { return -candidate.logit; },
      scratch.selection);
}

}  // namespace pelton::sampling
