#include "server/http_exchange.h"

#include <fmt/format.h>

#include <utility>

namespace pelton::server {

void Exchange::write_head(const HttpResponse& response, std::optional<size_t> length) {
  if (response.close) keep_alive_ = false;
  const bool bare = response.status == 204;
  pending_ += fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!bare) pending_ += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const HttpHeader& header : response.headers)
    pending_ += fmt::format("{}: {}\r\n", header.name, header.value);
  if (length && !bare) pending_ += fmt::format("Content-Length: {}\r\n", *length);
  if (!length && head_.minor_version == 1) {
    chunked_ = true;
    pending_ += "Transfer-Encoding: chunked\r\n";
  }
  if (!length && !chunked_) keep_alive_ = false;
  if (!keep_alive_) {
    pending_ += "Connection: close\r\n";
  } else if (head_.minor_version == 0) {
    pending_ += "Connection: keep-alive\r\n";
  }
  pending_ += "\r\n";
}

void Exchange::respond(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (started_ || gone_) return;
  started_ = true;
  ended_ = true;
  write_head(response, response.body.size());
  if (head_.method != "HEAD") pending_ += response.body;
  wake();
}

void Exchange::begin_stream(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (started_ || gone_) return;
  started_ = true;
  write_head(response, std::nullopt);
}

bool Exchange::write(std::string_view data) {
  const std::lock_guard lock(mutex_);
  if (gone_ || ended_ || !started_) return false;
  if (data.empty()) return true;
  if (pending_.size() + data.size() > output_limit_ && !pending_.empty()) {
    gone_ = true;
    io_.post([self = shared_from_this()] { self->drop(); });
    return false;
  }
  if (chunked_) {
    pending_ += fmt::format("{:x}\r\n", data.size());
    pending_ += data;
    pending_ += "\r\n";
  } else {
    pending_ += data;
  }
  wake();
  return true;
}

void Exchange::end_stream() {
  const std::lock_guard lock(mutex_);
  if (ended_ || gone_ || !started_) return;
  ended_ = true;
  if (chunked_) pending_ += "0\r\n\r\n";
  wake();
}

void Exchange::on_gone(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!gone_) {
      gone_callback_ = std::move(callback);
      return;
    }
  }
  io_.post(std::move(callback));
}

void Exchange::wake() {
  if (wake_posted_) return;
  wake_posted_ = true;
  io_.post([weak = connection_] {
    if (const auto connection = weak.lock()) connection->wake();
  });
}

Exchange::Output Exchange::take() {
  const std::lock_guard lock(mutex_);
  wake_posted_ = false;
  return {std::exchange(pending_, {}), ended_, gone_, keep_alive_};
}

void Exchange::client_gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    callback = std::exchange(gone_callback_, nullptr);
  }
  if (callback) callback();
  wake();
}

void Exchange::drop() {
  client_gone();
  if (const auto connection = connection_.lock()) connection->sever();
}

}  // namespace pelton::server
