// One request and its answer, between whoever answers and the connection's coroutine. Knows no
// sockets: the connection is woken when there is something to send.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http_server.h"

namespace pelton::server {

class IoThread {
 public:
  virtual ~IoThread() = default;
  // Both from any thread. Runs `task` there, later.
  virtual void post(std::function<void()> task) = 0;
  // Wakes every connection there, in a while. Takes no memory: for whom post() had none.
  virtual void wake_all_soon() = 0;
};

// The connection that an exchange belongs to. On the I/O thread.
class ExchangeConnection {
 public:
  virtual ~ExchangeConnection() = default;
  // There is output to take, or the client has gone.
  virtual void wake() = 0;
  // Ends at once, whatever is under way.
  virtual void sever() = 0;
};

// Any thread, except where it says otherwise.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(IoThread& io, std::weak_ptr<ExchangeConnection> connection, HttpHead head,
           std::string body, size_t output_limit)
      : io_(io),
        connection_(std::move(connection)),
        head_(std::move(head)),
        body_(std::move(body)),
        output_limit_(output_limit),
        keep_alive_(head_.keep_alive) {}

  const HttpHead& head() const override { return head_; }
  const std::string& body() const override { return body_; }
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse response) override;
  bool write(std::string_view data) override;
  void end_stream() override;
  void abandon() override;
  void on_gone(std::function<void()> callback) override;
  void post(std::function<void()> task) override { io_.post(std::move(task)); }

  // For the connection, on the I/O thread.
  struct Output {
    std::string bytes;
    bool ended = false;
    bool gone = false;
    bool keep_alive = false;
  };
  Output take();
  void client_gone();
  // Ends the connection of a client that does not read, though a write to it is under way.
  void drop();
  void refuse_keep_alive() {
    const std::lock_guard lock(mutex_);
    keep_alive_ = false;
  }

 private:
  struct Head {
    std::string text = {};
    bool chunked = false;
    bool keep_alive = false;
  };
  Head make_head(const HttpResponse& response, std::optional<size_t> length) const;
  void start(const Head& head, std::string_view body);
  void wake();

  IoThread& io_;
  std::weak_ptr<ExchangeConnection> connection_;
  const HttpHead head_;
  const std::string body_;
  const size_t output_limit_;

  std::mutex mutex_;
  std::string pending_;
  bool wake_posted_ = false;
  bool started_ = false;
  bool ended_ = false;
  bool gone_ = false;
  bool chunked_ = false;
  bool keep_alive_;
  std::function<void()> gone_callback_;
};

}  // namespace pelton::server
