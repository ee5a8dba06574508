#include "kernels/ref/rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::kernels::ref {

void rms_norm(std::span<const float> x, std::span<const float> weight, double eps,
              std::span<float> out) {
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void layer_norm(std::span<const float> x, std::span<const float> weight,
                std::span<const float> bias, double eps, std::span<float> out) {
  double mean = 0;
  for (float v : x) mean += v;
  mean /= static_cast<double>(x.size());
  double variance = 0;
  for (float v : x) variance += (v - mean) * (v - mean);
  variance /= static_cast<double>(x.size());
  const double scale = 1.0 / std::sqrt(variance + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const double shift = bias.empty() ? 0.0 : bias[i];
    out[i] = static_cast<float>((x[i] - mean) * scale * weight[i] + shift);
  }
}

void rope(std::span<float> head, std::span<const float> cosines, std::span<const float> sines,
          bool adjacent) {
  const size_t n = cosines.size();
  for (size_t i = 0; i < n; ++i) {
    float& a = head[adjacent ? 2 * i : i];
    float& b = head[adjacent ? 2 * i + 1 : i + n];
    const double x = a;
    const double y = b;
    a = static_cast<float>(x * cosines[i] - y * sines[i]);
    b = static_cast<float>(y * cosines[i] + x * sines[i]);
  }
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }
double gelu_tanh(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));  // 0.5 x (1 + tanh(u)) without its cancellation
}
double relu(double x) { return x > 0.0 ? x : 0.0; }

double log_sum_exp(std::span<const float> x) {
  double max = -HUGE_VAL;
  for (float v : x) max = std::max(max, static_cast<double>(v));
  double sum = 0;
  for (float v : x) sum += std::exp(v - max);
  return max + std::log(sum);
}

}  // namespace pelton::kernels::ref
