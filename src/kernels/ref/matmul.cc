#include "kernels/ref/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/packing.h"

namespace pelton::kernels::ref {

void round_trip_int8(std::span<const float> x, float* out) {
  constexpr size_t kBlock = 16;
  check(x.size() % kBlock == 0, "row is not whole blocks");
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const auto block = x.subspan(begin, kBlock);
    float maximum = 0.0f;
    bool finite = true;
    for (const float v : block) {
      finite = finite && std::isfinite(v);
      maximum = std::max(maximum, std::fabs(v));
    }
    for (size_t i = 0; i < kBlock; ++i) {
      if (!finite) {
        out[begin + i] = std::numeric_limits<float>::quiet_NaN();
      } else if (maximum < 0x1.0p-100f) {
        out[begin + i] = 0.0f;
      } else {
        const float inverse = 127.0f / maximum;
        out[begin + i] = std::nearbyint(block[i] * inverse) * (maximum / 127.0f);
      }
    }
  }
}

void product_row(const WeightMatrix& weight, std::span<const float> x, double* out,
                 double* magnitude) {
  check(static_cast<int64_t>(x.size()) == weight.columns, "row and matrix differ in columns");
  std::vector<float> row(x.size());
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_weight_row(weight, n, row.data());
    double sum = 0;
    double absolute = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      const double term = static_cast<double>(row[k]) * static_cast<double>(x[k]);
      sum += term;
      absolute += std::fabs(term);
    }
    out[n] = sum;
    magnitude[n] = absolute;
  }
}

}  // namespace pelton::kernels::ref
