// Outcome of an operation that a user, a file or a client can make fail. Cheap to move; an OK
// status holds no message.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace pelton {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's value is wrong: message names the field
  kNotFound,           // a file, tensor or name does not exist
  kDataLoss,           // a file's content breaks its format: message names file, place and reason
  kUnsupported,        // well-formed, but outside what this build can do
  kResourceExhausted,  // memory, blocks or queue space
  kCancelled,
  kIo,        // the operating system refused a read or write
  kInternal,  // a bug or hardware fault
};

// "invalid argument", "not found", ...
std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok_status() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with "context: " before its message; an OK status is returned unchanged.
  Status with_context(std::string_view context) const;
  // "data loss: model.gguf: ..." or "ok".
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status data_loss(std::string message);
Status unsupported(std::string message);
Status resource_exhausted(std::string message);
Status cancelled(std::string message);
Status io_error(std::string message);
Status internal_error(std::string message);

}  // namespace pelton
