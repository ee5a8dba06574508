// TLS without sockets: ciphertext goes in and out as bytes, so that whoever owns the connection
// keeps its own limits and time-outs. tls.cc is the only file that knows the library behind it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::server {

// One connection's state, the server's side. Not thread-safe.
class TlsConnection {
 public:
  virtual ~TlsConnection() = default;

  enum class State { kGoesOn, kOpen, kFailed };
  // Takes the handshake as far as the peer's bytes allow. What is to be sent: take_output().
  virtual State handshake() = 0;

  // Ciphertext that came from the peer. False when there is no memory for it.
  virtual bool put(std::string_view ciphertext) = 0;
  // Plaintext of what was put: how many bytes stand in `out`. 0: more ciphertext is needed, or
  // ended().
  virtual size_t read(char* out, size_t size) = 0;
  // The peer has said that it sends no more, or what it sent is not TLS.
  virtual bool ended() const = 0;

  // Encrypts; false when the connection is broken.
  virtual bool write(std::string_view plaintext) = 0;
  // Says that nothing more will be sent.
  virtual void finish() = 0;
  // Ciphertext for the peer, in order.
  virtual std::string take_output() = 0;
};

// Certificate and key, shared by all connections.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // PEM files: a certificate, its chain behind it, and an unencrypted private key. Errors name the
  // file.
  static Result<std::unique_ptr<TlsContext>> load(const std::string& certificate_file,
                                                  const std::string& key_file);
  // Null when there is no memory.
  virtual std::unique_ptr<TlsConnection> accept() const = 0;
};

}  // namespace pelton::server
