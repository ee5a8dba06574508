#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "pelton/sampling_params.h"

namespace pelton {
namespace {

// Limits that keep the cost of one request bounded.
constexpr int32_t kMaxCompletions = 128;
constexpr int32_t kMaxBeams = 64;
constexpr int32_t kMaxLogprobs = 1024;
constexpr size_t kMaxBiases = 65536;
constexpr size_t kMaxStops = 256;
constexpr size_t kMaxStopTokenIds = 1024;
constexpr size_t kMaxTextBytes = 4096;

Status integer(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} must be in [{}, {}], not {}", name, low, high, value));
}

// The negated comparisons refuse NaN.
Status closed(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} must be in [{}, {}], not {}", name, low, high, value));
}

Status share(const char* name, float value) {
  if (value > 0.0f && value <= 1.0f) return {};
  return invalid_argument(fmt::format("{} must be in (0, 1], not {}", name, value));
}

Status finite(const char* name, float value) {
  if (std::isfinite(value)) return {};
  return invalid_argument(fmt::format("{} must be a finite number, not {}", name, value));
}

Status at_least(const char* name, float value, float low) {
  if (std::isfinite(value) && value >= low) return {};
  return invalid_argument(fmt::format("{} must be at least {}, not {}", name, low, value));
}

Status first_of(std::initializer_list<Status> statuses) {
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return {};
}

Status texts(const char* name, const std::vector<std::string>& values) {
  if (values.size() > kMaxStops) {
    return invalid_argument(
        fmt::format("{} must have at most {} entries, not {}", name, kMaxStops, values.size()));
  }
  for (const std::string& value : values) {
    if (value.empty()) {
      return invalid_argument(fmt::format("{} must not hold an empty string", name));
    }
    if (value.size() > kMaxTextBytes) {
      return invalid_argument(fmt::format("an entry of {} must have at most {} bytes, not {}", name,
                                          kMaxTextBytes, value.size()));
    }
  }
  return {};
}

Status token_id(const char* name, int32_t token, int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) return {};
  return invalid_argument(fmt::format("{} holds token id {}, which is outside the vocabulary of {}",
                                      name, token, vocab_size));
}

Status lists(const SamplingParams& params, int32_t vocab_size) {
  if (params.logit_bias.size() > kMaxBiases) {
    return invalid_argument(fmt::format("logit_bias must have at most {} entries, not {}",
                                        kMaxBiases, params.logit_bias.size()));
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (Status s = token_id("logit_bias", token, vocab_size); !s.ok()) return s;
    if (Status s = closed("logit_bias", bias, -100.0f, 100.0f); !s.ok()) return s;
  }
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    return invalid_argument(fmt::format("stop_token_ids must have at most {} entries, not {}",
                                        kMaxStopTokenIds, params.stop_token_ids.size()));
  }
  for (const int32_t token : params.stop_token_ids) {
    if (Status s = token_id("stop_token_ids", token, vocab_size); !s.ok()) return s;
  }
  return first_of(
      {texts("stop", params.stop), texts("dry_sequence_breakers", params.dry_sequence_breakers)});
}

Status lengths(const SamplingParams& params, int32_t max_model_len) {
  if (params.max_tokens < 0) {
    return invalid_argument(
        fmt::format("max_tokens must not be negative, not {}", params.max_tokens));
  }
  if (Status s = integer("min_tokens", params.min_tokens, 0, max_model_len); !s.ok()) return s;
  if (params.min_tokens > params.max_tokens) {
    return invalid_argument(fmt::format("min_tokens {} must not exceed max_tokens {}",
                                        params.min_tokens, params.max_tokens));
  }
  return {};
}

Status beams(const SamplingParams& params) {
  if (Status s = integer("num_beams", params.num_beams, 1, kMaxBeams); !s.ok()) return s;
  if (params.num_beams == 1) return {};
  if (Status s = finite("length_penalty", params.length_penalty); !s.ok()) return s;
  if (params.n > params.num_beams) {
    return invalid_argument(
        fmt::format("n {} must not exceed num_beams {}", params.n, params.num_beams));
  }
  const std::pair<const char*, bool> neutral[] = {
      {"temperature", params.temperature == 0.0f || params.temperature == 1.0f},
      {"top_k", params.top_k <= 0},
      {"top_p", params.top_p == 1.0f},
      {"min_p", params.min_p == 0.0f},
      {"typical_p", params.typical_p == 1.0f},
      {"repetition_penalty", params.repetition_penalty == 1.0f},
      {"presence_penalty", params.presence_penalty == 0.0f},
      {"frequency_penalty", params.frequency_penalty == 0.0f},
      {"dry_multiplier", params.dry_multiplier == 0.0f},
      {"logit_bias", params.logit_bias.empty()},
      {"logprobs", params.logprobs < 0},
  };
  for (const auto& [name, is_neutral] : neutral) {
    if (!is_neutral) {
      return invalid_argument(fmt::format("{} cannot be combined with num_beams above 1", name));
    }
  }
  return {};
}

}  // namespace

Status validate(const SamplingParams& params, int32_t vocab_size, int32_t max_model_len) {
  return first_of({
      lengths(params, max_model_len),
      at_least("temperature", params.temperature, 0.0f),
      params.top_k >= -1
          ? Status()
          : invalid_argument(fmt::format("top_k must be -1 or more, not {}", params.top_k)),
      share("top_p", params.top_p),
      closed("min_p", params.min_p, 0.0f, 1.0f),
      share("typical_p", params.typical_p),
      params.repetition_penalty > 0.0f
          ? finite("repetition_penalty", params.repetition_penalty)
          : invalid_argument(fmt::format("repetition_penalty must be above 0, not {}",
                                         params.repetition_penalty)),
      closed("presence_penalty", params.presence_penalty, -2.0f, 2.0f),
      closed("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f),
      at_least("dry_multiplier", params.dry_multiplier, 0.0f),
      at_least("dry_base", params.dry_base, 1.0f),
      params.dry_allowed_length >= 1
          ? Status()
          : invalid_argument(fmt::format("dry_allowed_length must be at least 1, not {}",
                                         params.dry_allowed_length)),
      params.dry_penalty_last_n >= -1
          ? Status()
          : invalid_argument(fmt::format("dry_penalty_last_n must be -1 or more, not {}",
                                         params.dry_penalty_last_n)),
      integer("n", params.n, 1, kMaxCompletions),
      integer("logprobs", params.logprobs, -1, kMaxLogprobs),
      integer("prompt_logprobs", params.prompt_logprobs, -1, kMaxLogprobs),
      lists(params, vocab_size),
      beams(params),
  });
}

}  // namespace pelton
