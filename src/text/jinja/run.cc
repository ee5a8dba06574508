#include "text/jinja/run.h"

#include <fmt/format.h>

namespace pelton::text::jinja {

void Run::fail(std::string message) {
  if (!ok()) return;
  status_ = invalid_argument(fmt::format("chat template, line {}: {}", line_, message));
}

void Run::fail_plain(std::string message) {
  if (ok()) status_ = invalid_argument(std::move(message));
}

bool Run::spend(int64_t steps) {
  if (!ok()) return false;
  if (steps > steps_left_) {
    fail(fmt::format("the budget of {} steps is spent", limits_.max_steps));
    return false;
  }
  steps_left_ -= steps;
  return true;
}

bool Run::hold(size_t bytes) {
  if (!spend(1 + static_cast<int64_t>(bytes / 256))) return false;
  if (bytes > bytes_left_) {
    fail(fmt::format("the budget of {} bytes of intermediate values is spent",
                     byte_budget(limits_)));
    return false;
  }
  bytes_left_ -= bytes;
  return true;
}

}  // namespace pelton::text::jinja
