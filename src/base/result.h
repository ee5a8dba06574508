// A value or the status that explains its absence. g++ 12 has no <expected> in C++20.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "pelton/status.h"

namespace pelton {

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return some_error_status;`.
  template <typename U = T>
    requires(std::is_constructible_v<T, U> && !std::is_same_v<std::remove_cvref_t<U>, Status> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value) : value_(std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {   // NOLINT(google-explicit-constructor)
    check(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  // OK when a value is held.
  const Status& status() const { return status_; }

  T& value() & {
    check(ok(), "Result::value() on an error");
    return *value_;
  }
  const T& value() const& {
    check(ok(), "Result::value() on an error");
    return *value_;
  }
  T&& value() && {
    check(ok(), "Result::value() on an error");
    return std::move(*value_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace pelton
