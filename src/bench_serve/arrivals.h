// When requests are sent. Open loop: at times that do not depend on how fast answers come, so a
// slow server meets a queue. Closed loop: as soon as one of a fixed number of clients is free.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace pelton::bench_serve {

struct ArrivalOptions {
  double request_rate = 0;  // requests a second; 0 = all at once
  // Shape of the gamma distribution of the gaps: 1 = Poisson, below 1 comes in bursts, above 1 is
  // more even.
  double burstiness = 1;
  uint64_t seed = 0;
};

// Seconds after the start at which each of `count` requests is due, ascending, the first at 0. The
// same options give the same times.
Result<std::vector<double>> arrival_times(const ArrivalOptions& options, int count);

}  // namespace pelton::bench_serve
