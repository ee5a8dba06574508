// The HTTP server behind a small interface of its own; the library that drives sockets is known to
// http_server.cc alone. One I/O thread (the caller of run()) serves every connection: handlers must
// not block it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http_types.h"
#include "server/tls.h"

namespace pelton::server {

// One request and its answer. Every method may be called from any thread; the answer is either one
// respond(), or begin_stream(), writes, end_stream(). Once the client has gone all of them do
// nothing. One that throws for want of memory has done nothing either.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpHead& head() const = 0;
  virtual const std::string& body() const = 0;

  virtual void respond(HttpResponse response) = 0;
  // Status line and headers of an answer whose length is not known; `head.body` is ignored.
  virtual void begin_stream(HttpResponse head) = 0;
  // False when the client has gone, or was dropped because it left more than
  // HttpLimits::output_bytes unread.
  virtual bool write(std::string_view data) = 0;
  virtual void end_stream() = 0;
  // Ends the connection without a further word. Takes no memory.
  virtual void abandon() = 0;

  // Called once, on the I/O thread, when the client goes before the answer is complete; at once
  // when it has gone already.
  virtual void on_gone(std::function<void()> callback) = 0;
  // Runs `task` on the I/O thread, later.
  virtual void post(std::function<void()> task) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // On the I/O thread, before a byte of the body is read: an answer refuses the request.
  virtual std::optional<HttpResponse> refuse(const HttpHead& head) = 0;
  // On the I/O thread, with the whole body. Answers now or later, from any thread.
  virtual void handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // The body of answers that the server itself makes: malformed requests, limits, time-outs.
  virtual std::string error_body(int status, std::string_view message) = 0;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0 = any free one
  HttpLimits limits = {};
  std::shared_ptr<const TlsContext> tls = nullptr;  // null: plain HTTP
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  // Binds and listens; connections are served from run() on. `handler` must outlive the server.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options,
                                                    HttpHandler& handler);

  virtual uint16_t port() const = 0;
  // Serves until stop(). kInternal when the loop itself failed.
  virtual Status run() = 0;
  // From any thread: no new connections, and every answer from now on ends its connection; idle
  // connections are closed.
  virtual void close_listener() = 0;
  virtual void stop() = 0;
  // From any thread: runs `task` on the I/O thread, later.
  virtual void post(std::function<void()> task) = 0;
  // Calls `callback` on the I/O thread for SIGTERM and SIGINT. Before run().
  virtual void on_signal(std::function<void()> callback) = 0;
  // Calls `task` on the I/O thread again and again. Before run().
  virtual void every(std::chrono::milliseconds period, std::function<void()> task) = 0;
  virtual int open_connections() const = 0;
  // Connections that the limits allow: fewer than asked where the process may not open as many.
  virtual int max_connections() const = 0;
};

}  // namespace pelton::server
