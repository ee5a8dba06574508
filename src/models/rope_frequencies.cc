#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "models/config.h"

namespace pelton::models {
namespace {

// theta^(2i / d), [rotary_dim / 2]. The reference rounds the exponent to float and takes a float
// power; the power here is taken in double and rounded once, so both agree within an ulp.
std::vector<float> period_scales(double theta, int32_t rotary_dim) {
  std::vector<float> scales(static_cast<size_t>(rotary_dim) / 2);
  const double base = static_cast<float>(theta);
  for (size_t i = 0; i < scales.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    scales[i] = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
  }
  return scales;
}

std::vector<float> plain(double theta, int32_t rotary_dim) {
  std::vector<float> frequencies = period_scales(theta, rotary_dim);
  for (float& f : frequencies) f = 1.0f / f;
  return frequencies;
}

// The base grows with the part of the context beyond the trained one (NTK-aware scaling).
std::vector<float> dynamic(const RopeConfig& config, int32_t context_len, int32_t trained_len) {
  const double d = config.rotary_dim;
  const double factor = config.factor;
  const double length = std::max(context_len, trained_len);
  const double stretch = factor * length / trained_len - (factor - 1.0);
  return plain(config.theta * std::pow(stretch, d / (d - 2.0)), config.rotary_dim);
}

// Long wavelengths are divided by the factor, short ones kept, those between interpolated.
std::vector<float> llama3(const RopeConfig& config) {
  std::vector<float> frequencies = plain(config.theta, config.rotary_dim);
  const auto trained_len = static_cast<float>(config.original_max_position_embeddings);
  const float longest = trained_len / config.low_freq_factor;
  const float shortest = trained_len / config.high_freq_factor;
  for (float& f : frequencies) {
    // Quotients by a reciprocal, as the reference rounds them.
    const float wavelength = 1.0f / f * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > longest) {
      f = f / config.factor;
    } else if (!(wavelength < shortest)) {
      const float smooth = (1.0f / wavelength * trained_len - config.low_freq_factor) /
                           (config.high_freq_factor - config.low_freq_factor);
      f = (1.0f - smooth) * f / config.factor + smooth * f;
    }
  }
  return frequencies;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// The dimension whose wavelength turns `rotations` times within the trained context.
double yarn_dimension(const RopeConfig& config, double rotations) {
  return config.rotary_dim *
         std::log(config.original_max_position_embeddings / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(static_cast<double>(config.theta)));
}

// Fast dimensions are kept, slow ones divided by the factor, with a linear ramp between.
RopeFrequencies yarn(const RopeConfig& config) {
  double low = yarn_dimension(config, config.beta_fast);
  double high = yarn_dimension(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_dim - 1.0);
  if (low == high) high += 0.001;

  RopeFrequencies out;
  out.inv_freq = period_scales(config.theta, config.rotary_dim);
  for (size_t i = 0; i < out.inv_freq.size(); ++i) {
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float scale = out.inv_freq[i];
    out.inv_freq[i] = 1.0f / (config.factor * scale) * (1.0f - keep) + 1.0f / scale * keep;
  }
  if (config.attention_factor) {
    out.magnitude = *config.attention_factor;
  } else if (config.mscale.value_or(0.0f) != 0.0f && config.mscale_all_dim.value_or(0.0f) != 0.0f) {
    out.magnitude = static_cast<float>(yarn_mscale(config.factor, *config.mscale) /
                                       yarn_mscale(config.factor, *config.mscale_all_dim));
  } else {
    out.magnitude = static_cast<float>(yarn_mscale(config.factor, 1.0));
  }
  return out;
}

// Measured factors a dimension, one set within the trained context and one beyond it.
RopeFrequencies longrope(const RopeConfig& config, int32_t context_len) {
  const bool beyond = context_len > config.original_max_position_embeddings;
  const std::vector<float>& factors = beyond ? config.long_factor : config.short_factor;
  RopeFrequencies out;
  out.inv_freq = period_scales(config.theta, config.rotary_dim);
  check(factors.size() == out.inv_freq.size(), "LongRoPE factors do not match the rotary size");
  for (size_t i = 0; i < factors.size(); ++i) {
    out.inv_freq[i] = 1.0f / (factors[i] * out.inv_freq[i]);
  }
  if (config.attention_factor) {
    out.magnitude = *config.attention_factor;
  } else if (config.factor > 1.0f) {
    out.magnitude = static_cast<float>(std::sqrt(
        1.0 + std::log(static_cast<double>(config.factor)) /
                  std::log(static_cast<double>(config.original_max_position_embeddings))));
  }
  return out;
}

RopeFrequencies by_scaling(const RopeConfig& config, int32_t context_len,
                           int32_t max_position_embeddings) {
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear: {
      RopeFrequencies out{plain(config.theta, config.rotary_dim), 1.0f};
      for (float& f : out.inv_freq) f /= config.factor;
      return out;
    }
    case RopeScaling::kDynamic:
      return {dynamic(config, context_len, max_position_embeddings), 1.0f};
    case RopeScaling::kYarn:
      return yarn(config);
    case RopeScaling::kLlama3:
      return {llama3(config), 1.0f};
    case RopeScaling::kLongRope:
      return longrope(config, context_len);
  }
  return {plain(config.theta, config.rotary_dim), 1.0f};
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, int32_t context_len,
                                 int32_t max_position_embeddings) {
  check(config.rotary_dim > 0 && config.rotary_dim % 2 == 0, "rotary_dim is not positive and even");
  RopeFrequencies out = by_scaling(config, context_len, max_position_embeddings);
  if (!config.freq_factors.empty()) {
    check(config.freq_factors.size() == out.inv_freq.size(),
          "frequency factors do not match the rotary size");
    for (size_t i = 0; i < out.inv_freq.size(); ++i) out.inv_freq[i] /= config.freq_factors[i];
  }
  return out;
}

}  // namespace pelton::models
