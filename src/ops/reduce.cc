#include "ops/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/cpu_features.h"
#include "kernels/cpu/kernel_table.h"

namespace pelton::ops {
namespace {

const kernels::RowKernels& row_kernels() {
  static const kernels::RowKernels& kernels =
      kernels::kernels_for(cpu_features().best_level()).rows;
  return kernels;
}

bool before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

}  // namespace

int32_t argmax(std::span<const float> row) {
  check(!row.empty(), "argmax of an empty row");
  const auto n = static_cast<int64_t>(row.size());
  const int64_t at = row_kernels().find_at_least(row.data(), n, row_kernels().max(row.data(), n));
  return at < n ? static_cast<int32_t>(at) : 0;
}

double log_sum_exp(std::span<const float> row) {
  const auto n = static_cast<int64_t>(row.size());
  const float max = row_kernels().max(row.data(), n);
  if (!std::isfinite(max)) return max;
  return max + std::log(row_kernels().sum_exp(row.data(), n, max));
}

std::span<Candidate> top_k(std::span<const float> row, int32_t k, std::span<Candidate> scratch) {
  check(k >= 0 && std::ssize(scratch) >= top_k_scratch(k), "top_k needs more scratch");
  if (k == 0 || row.empty()) return {};
  const auto n = static_cast<int64_t>(row.size());
  // Candidates at or above the bound gather in `scratch`; when it is full the best k stay and the
  // k-th becomes the bound. Elements equal to the bound still enter: their ids are higher, so they
  // lose, but only the comparison says so.
  std::array<int32_t, 256> ids;
  float bound = -std::numeric_limits<float>::infinity();
  size_t count = 0;
  const auto keep_best = [&] {
    const auto wanted = static_cast<size_t>(k);
    if (count <= wanted) return;
    std::nth_element(scratch.begin(), scratch.begin() + k - 1,
                     scratch.begin() + static_cast<int64_t>(count), before);
    count = wanted;
    bound = scratch[wanted - 1].value;
  };
  kernels::CollectState state;
  state.capacity = static_cast<int32_t>(ids.size());
  while (state.next < n) {
    state.count = 0;
    row_kernels().collect_above(row.data(), n, bound, ids.data(), &state);
    if (count + static_cast<size_t>(state.count) > scratch.size()) keep_best();
    for (int32_t i = 0; i < state.count; ++i) {
      const int32_t id = ids[static_cast<size_t>(i)];
      scratch[count++] = {id, row[static_cast<size_t>(id)]};
    }
  }
  keep_best();
  std::sort(scratch.begin(), scratch.begin() + static_cast<int64_t>(count), before);
  return scratch.first(count);
}

}  // namespace pelton::ops
