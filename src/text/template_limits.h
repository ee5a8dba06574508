// Budgets of one rendering of a chat template.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pelton::text {

struct TemplateLimits {
  int64_t max_steps = 5'000'000;
  size_t max_output_bytes = 16u << 20;
  int max_depth = 64;
};

}  // namespace pelton::text
