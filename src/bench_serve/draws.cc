#include "bench_serve/draws.h"

#include <cmath>

namespace pelton::bench_serve {

double exponential_draw(Random& random) { return -std::log1p(-random.uniform()); }

// Marsaglia and Tsang, "A simple method for generating gamma variables"; below shape 1 by the power
// of a uniform number.
double gamma_draw(Random& random, double shape) {
  if (shape == 1) return exponential_draw(random);
  if (shape < 1) return gamma_draw(random, shape + 1) * std::pow(1 - random.uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = static_cast<double>(random.normal());
    const double t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t;
    if (std::log(1 - random.uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

double log_normal_draw(Random& random, double mean, double sigma) {
  const double x = static_cast<double>(random.normal());
  return mean * std::exp(sigma * x - sigma * sigma / 2);
}

}  // namespace pelton::bench_serve
