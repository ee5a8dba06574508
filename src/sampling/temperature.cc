#include "sampling/row.h"
#include "sampling/stages.h"

namespace pelton::sampling {

void apply_temperature(std::span<float> logits, float temperature) {
  const float max = scan_row(logits).max;
  for (float& logit : logits) logit = (logit - max) / temperature;
}

}  // namespace pelton::sampling
