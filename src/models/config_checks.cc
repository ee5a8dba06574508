#include "models/config_checks.h"

#include <fmt/format.h>

#include <cmath>

namespace pelton::models {
namespace {

bool in_range(double value, double above, double most) {
  return std::isfinite(value) && value > above && value <= most;
}

Status check_factors(const std::vector<float>& factors, int32_t rotary_dim, std::string_view path,
                     std::string_view key) {
  if (factors.empty()) return Status::ok_status();  // a reader of tensors fills them
  if (factors.size() != static_cast<size_t>(rotary_dim) / 2) {
    return field_error(path, key,
                       fmt::format("a list of {} factors where {} rotary dimensions need {}",
                                   factors.size(), rotary_dim, rotary_dim / 2));
  }
  for (float factor : factors) {
    if (!in_range(factor, 0.0, kMaxRopeFactor)) {
      return field_error(path, key, fmt::format("factor {} is not in (0, 1e6]", factor));
    }
  }
  return Status::ok_status();
}

Status check_yarn(const RopeConfig& rope, std::string_view path, std::string_view key) {
  if (!in_range(rope.beta_slow, 0.0, 1e6) || !in_range(rope.beta_fast, 0.0, 1e6) ||
      rope.beta_fast < rope.beta_slow) {
    return field_error(path, key,
                       fmt::format("beta_fast {} and beta_slow {} are not 0 < slow <= fast",
                                   rope.beta_fast, rope.beta_slow));
  }
  for (const auto& scale : {rope.mscale, rope.mscale_all_dim}) {
    if (scale && !(std::isfinite(*scale) && *scale >= 0.0f && *scale <= 1e3f)) {
      return field_error(path, key, fmt::format("mscale {} is not in [0, 1000]", *scale));
    }
  }
  return Status::ok_status();
}

Status check_scaling(const RopeConfig& rope, std::string_view path, std::string_view key) {
  if (!in_range(rope.factor, 0.0, kMaxRopeFactor) || rope.factor < 1.0f) {
    return field_error(path, key, fmt::format("factor {} is not in [1, 1e6]", rope.factor));
  }
  if (rope.attention_factor && !in_range(*rope.attention_factor, 0.0, 1e3)) {
    return field_error(
        path, key, fmt::format("attention_factor {} is not in (0, 1000]", *rope.attention_factor));
  }
  const bool needs_original = rope.scaling == RopeScaling::kYarn ||
                              rope.scaling == RopeScaling::kLlama3 ||
                              rope.scaling == RopeScaling::kLongRope;
  if (needs_original && (rope.original_max_position_embeddings < 2 ||
                         rope.original_max_position_embeddings > kMaxPositions)) {
    return field_error(path, key,
                       fmt::format("original_max_position_embeddings {} is not in [2, {}]",
                                   rope.original_max_position_embeddings, kMaxPositions));
  }
  if (rope.scaling == RopeScaling::kDynamic && rope.rotary_dim <= 2) {
    return field_error(path, key, "dynamic scaling needs more than 2 rotary dimensions");
  }
  if (rope.scaling == RopeScaling::kLlama3 &&
      (!in_range(rope.low_freq_factor, 0.0, 1e6) || !in_range(rope.high_freq_factor, 0.0, 1e6) ||
       rope.high_freq_factor <= rope.low_freq_factor)) {
    return field_error(path, key,
                       fmt::format("low_freq_factor {} and high_freq_factor {} are not 0 < low < "
                                   "high",
                                   rope.low_freq_factor, rope.high_freq_factor));
  }
  return rope.scaling == RopeScaling::kYarn ? check_yarn(rope, path, key) : Status::ok_status();
}

Status check_rope(const RopeConfig& rope, int32_t head_dim, std::string_view path,
                  const FieldNames& names) {
  if (rope.rotary_dim == 0) return Status::ok_status();  // learned positions
  if (rope.rotary_dim < 0 || rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0) {
    return field_error(path, names.rotary_dim,
                       fmt::format("{} rotary dimensions of a head of {}: they must be even, "
                                   "positive and at most the head",
                                   rope.rotary_dim, head_dim));
  }
  if (!in_range(rope.theta, 1.0, kMaxRopeTheta)) {
    return field_error(path, names.rope_theta, fmt::format("{} is not in (1, 1e15]", rope.theta));
  }
  if (rope.scaling != RopeScaling::kNone) {
    if (Status s = check_scaling(rope, path, names.rope_scaling); !s.ok()) return s;
  }
  for (const auto* factors : {&rope.short_factor, &rope.long_factor, &rope.freq_factors}) {
    if (Status s = check_factors(*factors, rope.rotary_dim, path, names.rope_scaling); !s.ok()) {
      return s;
    }
  }
  return Status::ok_status();
}

Status check_heads(const ModelConfig& config, std::string_view path, const FieldNames& names) {
  if (config.num_key_value_heads > config.num_attention_heads ||
      config.num_attention_heads % config.num_key_value_heads != 0) {
    return field_error(path, names.num_key_value_heads,
                       fmt::format("{} key-value heads do not divide {} attention heads",
                                   config.num_key_value_heads, config.num_attention_heads));
  }
  if (config.head_dim < 1 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    return field_error(
        path, names.head_dim,
        fmt::format("{} is not an even number in [2, {}]", config.head_dim, kMaxHeadDim));
  }
  if (!in_range(config.attention_scale, 0.0, 1e3)) {
    return field_error(
        path, names.head_dim,
        fmt::format("attention scale {} is not in (0, 1000]", config.attention_scale));
  }
  return Status::ok_status();
}

Status check_tokens(const ModelConfig& config, std::string_view path, const FieldNames& names) {
  const auto outside = [&](int32_t id) { return id < 0 || id >= config.vocab_size; };
  if (config.bos_token_id && outside(*config.bos_token_id)) {
    return field_error(path, names.bos_token_id,
                       fmt::format("id {} is outside the vocabulary of {}", *config.bos_token_id,
                                   config.vocab_size));
  }
  for (int32_t id : config.eos_token_ids) {
    if (outside(id)) {
      return field_error(
          path, names.eos_token_id,
          fmt::format("id {} is outside the vocabulary of {}", id, config.vocab_size));
    }
  }
  return Status::ok_status();
}

}  // namespace

Status field_error(std::string_view path, std::string_view key, std::string_view reason) {
  return data_loss(fmt::format("{}: {}: {}", path, key, reason));
}

Status field_unsupported(std::string_view path, std::string_view key, std::string_view reason) {
  return unsupported(fmt::format("{}: {}: {}", path, key, reason));
}

Status check_config(const ModelConfig& config, std::string_view path, const FieldNames& names) {
  if (Status s = check_heads(config, path, names); !s.ok()) return s;
  if (!in_range(config.norm_eps, 0.0, kMaxNormEps)) {
    return field_error(path, names.norm_eps, fmt::format("{} is not in (0, 0.1]", config.norm_eps));
  }
  if (Status s = check_rope(config.rope, config.head_dim, path, names); !s.ok()) return s;
  if (config.local_rope) {
    if (Status s = check_rope(*config.local_rope, config.head_dim, path, names); !s.ok()) return s;
  }
  for (int32_t window : config.sliding_windows) {
    if (window < 0) {
      return field_error(path, names.sliding_window, fmt::format("{} is negative", window));
    }
  }
  return check_tokens(config, path, names);
}

}  // namespace pelton::models
