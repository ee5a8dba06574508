// Scalar references of the row kernels: double throughout, rounded once at the end. The oracle of
// the tests, never chosen to run a model.
#pragma once

#include <cstdint>
#include <span>

namespace pelton::kernels::ref {

void rms_norm(std::span<const float> x, std::span<const float> weight, double eps,
              std::span<float> out);
// bias may be empty.
void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> out);
// Rotates the pairs of one head, (i, i + n) or (2i, 2i + 1) for n = cosines.size().
void rope(std::span<float> head, std::span<const float> cosines, std::span<const float> sines,
          bool adjacent);
double silu(double x);
double gelu(double x);
double gelu_tanh(double x);
double relu(double x);
// log(sum(exp(x))).
double log_sum_exp(std::span<const float> x);

}  // namespace pelton::kernels::ref
