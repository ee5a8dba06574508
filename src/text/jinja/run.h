// One rendering's budgets and its first error. Everything that a template can make grow or repeat
// is charged here before it happens; after the first error all work stops.
#pragma once

#include <cstdint>
#include <string>

#include "pelton/status.h"
#include "text/template_limits.h"

namespace pelton::text::jinja {

class Run {
 public:
  explicit Run(const TemplateLimits& limits)
      : limits_(limits), steps_left_(limits.max_steps), bytes_left_(byte_budget(limits)) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // Line of the construct being evaluated; names the place of an error.
  void at(uint32_t line) { line_ = line; }
  uint32_t line() const { return line_; }

  // The first error wins. `fail` adds the line; `fail_plain` keeps the template's own words.
  void fail(std::string message);
  void fail_plain(std::string message);

  bool spend(int64_t steps);
  // Work proportional to reading `bytes`.
  bool scan(size_t bytes) { return spend(1 + static_cast<int64_t>(bytes / 256)); }
  // A new text or container of `bytes`.
  bool hold(size_t bytes);

  // Every text and container made during a rendering, together: bounds memory without tracking what
  // is still alive.
  static size_t byte_budget(const TemplateLimits& limits) {
    return limits.max_output_bytes * 16 + (16u << 20);
  }
  const TemplateLimits& limits() const { return limits_; }

 private:
  TemplateLimits limits_;
  int64_t steps_left_;
  size_t bytes_left_;
  uint32_t line_ = 0;
  Status status_;
};

}  // namespace pelton::text::jinja
