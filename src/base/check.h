// Programmer errors. A failed check throws InternalError, which only the engine's step loop, a
// server worker, a command's main and the thread pool's barrier catch. Never used on what a user, a
// file or a client can cause.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string_view>

namespace pelton {

class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void check_failed(std::string_view what, const std::source_location& where);

inline void check(bool condition, std::string_view what,
                  const std::source_location& where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    check_failed(what, where);
  }
}

}  // namespace pelton
