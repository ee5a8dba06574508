// What tests of a live server ask it with: one connection to loopback.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::server {

class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int descriptor() const { return fd_; }
  bool connected() const { return connected_; }
  // As much as the server takes before it closes.
  void send(std::string_view bytes) const;
  // Empty when the server has closed.
  std::string read_some(size_t size) const;
  // Until it closes.
  std::string read_all() const;
  // Makes the destructor's close a reset.
  void reset() const;

 private:
  int fd_;
  bool connected_ = false;
};

// A request whose connection ends after its answer.
std::string request(std::string_view path, const std::string& body);
bool says(const std::string& answer, int status);

}  // namespace pelton::server
