#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

namespace pelton::kernels::ref {

AttentionAnswer attention(const AttentionQuery& q, const AttentionVariant& variant) {
  const size_t d = q.query.size();
  const int32_t window = variant.sliding_window;
  const int32_t first = window > 0 ? std::max(0, q.position - window + 1) : 0;
  std::vector<double> scores;
  double max = -HUGE_VAL;
  AttentionAnswer answer;
  for (int32_t t = first; t <= q.position; ++t) {
    double s = 0;
    double product = 0;
    const float* key = q.keys + t * q.stride;
    for (size_t i = 0; i < d; ++i) {
      const double term = static_cast<double>(q.query[i]) * key[i];
      s += term;
      product += std::fabs(term);
    }
    s *= variant.scale;
    answer.largest_product = std::max(answer.largest_product, product * std::fabs(variant.scale));
    if (variant.soft_cap > 0) s = variant.soft_cap * std::tanh(s / variant.soft_cap);
    if (variant.alibi_slopes != nullptr) {
      s += static_cast<double>(variant.alibi_slopes[q.head]) * (t - q.position);
    }
    scores.push_back(s);
    max = std::max(max, s);
  }
  if (variant.sinks != nullptr) max = std::max(max, static_cast<double>(variant.sinks[q.head]));
  double sum = variant.sinks != nullptr ? std::exp(variant.sinks[q.head] - max) : 0.0;
  answer.out.assign(d, 0.0);
  answer.magnitude.assign(d, 0.0);
  for (int32_t t = first; t <= q.position; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t - first)] - max);
    sum += p;
    for (size_t i = 0; i < d; ++i) {
      const double v = q.values[t * q.stride + static_cast<int64_t>(i)];
      answer.out[i] += p * v;
      answer.magnitude[i] += p * std::fabs(v);
    }
  }
  for (double& v : answer.out) v /= sum;
  for (double& v : answer.magnitude) v /= sum;
  return answer;
}

void round_to_page(KvFormat format, std::span<float> values) {
  float largest = 0;
  for (float v : values) largest = std::max(largest, std::fabs(v));
  const float scale = largest / 127.0f;
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  for (float& v : values) {
    switch (format) {
      case KvFormat::kF32:
        break;
      case KvFormat::kF16:
        v = f16_to_f32(f32_to_f16(v));
        break;
      case KvFormat::kBF16:
        v = bf16_to_f32(f32_to_bf16(v));
        break;
      case KvFormat::kFp8:
        v = fp8_to_f32(f32_to_fp8(v));
        break;
      case KvFormat::kInt8:
        v = std::nearbyint(std::clamp(v * inverse, -127.0f, 127.0f)) * scale;
        break;
    }
  }
}

}  // namespace pelton::kernels::ref
