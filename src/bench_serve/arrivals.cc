#include "bench_serve/arrivals.h"

#include <cmath>

#include "bench_serve/draws.h"

namespace pelton::bench_serve {
namespace {

constexpr double kFastest = 1e6;

}  // namespace

Result<std::vector<double>> arrival_times(const ArrivalOptions& options, int count) {
  if (!(options.request_rate >= 0) || options.request_rate > kFastest)
    return invalid_argument("--request-rate must be in [0, 1e6] requests a second");
  if (!(options.burstiness >= 0.01) || options.burstiness > 1000)
    return invalid_argument("--burstiness must be in [0.01, 1000]");
  std::vector<double> times(static_cast<size_t>(count));
  if (options.request_rate == 0) return times;
  Random random(options.seed ^ 0xA11A1ULL);
  double now = 0;
  for (double& time : times) {
    time = now;
    now += gamma_draw(random, options.burstiness) / (options.burstiness * options.request_rate);
  }
  return times;
}

}  // namespace pelton::bench_serve
