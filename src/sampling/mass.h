// Selection by probability mass without sorting the vocabulary.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "sampling/scratch.h"

namespace pelton::sampling {

// Keeps the shortest prefix of `candidates`, ordered ascending by (key, token), whose weight
// reaches share `p` of the total; at least one. `key` is a pure function with finite values;
// candidates have weight and keep their order. Time linear in their number. `selection` is work
// space.
void keep_mass(std::vector<Candidate>& candidates, float p,
               FunctionRef<float(const Candidate&)> key, std::vector<Candidate>& selection);

}  // namespace pelton::sampling
