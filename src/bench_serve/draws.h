// Draws from the distributions that load is made of, over the project's own generator: the same
// seed gives the same load with every standard library.
#pragma once

#include "base/rng.h"

namespace pelton::bench_serve {

// Mean 1.
double exponential_draw(Random& random);
// Mean and variance `shape`, which is positive.
double gamma_draw(Random& random, double shape);
// Of the given mean; `sigma` is the standard deviation of the logarithm.
double log_normal_draw(Random& random, double mean, double sigma);

}  // namespace pelton::bench_serve
