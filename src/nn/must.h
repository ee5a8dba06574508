// Ops return a status; inside a forward, whose shapes were proved at load, a refusal is a
// programmer error.
#pragma once

#include "base/check.h"
#include "base/result.h"

namespace pelton::nn {

inline void must(const Status& status,
                 const std::source_location& where = std::source_location::current()) {
  if (!status.ok()) [[unlikely]] {
    check_failed(status.message(), where);
  }
}

template <typename T>
T must(Result<T> result, const std::source_location& where = std::source_location::current()) {
  must(result.status(), where);
  return std::move(result).value();
}

}  // namespace pelton::nn
