#include "server/http_exchange.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace pelton::server {

// Under the lock, as what follows. Nothing of the exchange changes before all memory is there.
Exchange::Head Exchange::make_head(const HttpResponse& response,
                                   std::optional<size_t> length) const {
  Head head{.keep_alive = keep_alive_ && !response.close};
  const bool bare = response.status == 204;
  std::string& out = head.text;
  out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!bare) out += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const HttpHeader& header : response.headers)
    out += fmt::format("{}: {}\r\n", header.name, header.value);
  if (length && !bare) out += fmt::format("Content-Length: {}\r\n", *length);
  if (!length && head_.minor_version == 1) {
    head.chunked = true;
    out += "Transfer-Encoding: chunked\r\n";
  }
  if (!length && !head.chunked) head.keep_alive = false;
  if (!head.keep_alive) {
    out += "Connection: close\r\n";
  } else if (head_.minor_version == 0) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return head;
}

void Exchange::start(const Head& head, std::string_view body) {
  pending_.reserve(head.text.size() + body.size());
  pending_ += head.text;
  pending_ += body;
  started_ = true;
  chunked_ = head.chunked;
  keep_alive_ = head.keep_alive;
}

void Exchange::respond(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (started_ || gone_) return;
  const bool bodiless = head_.method == "HEAD";
  start(make_head(response, response.body.size()),
        bodiless ? std::string_view() : std::string_view(response.body));
  ended_ = true;
  wake();
}

void Exchange::begin_stream(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  if (started_ || gone_) return;
  start(make_head(response, std::nullopt), {});
}

bool Exchange::write(std::string_view data) {
  const std::lock_guard lock(mutex_);
  if (gone_ || ended_ || !started_) return false;
  if (data.empty()) return true;
  if (pending_.size() + data.size() > output_limit_ && !pending_.empty()) {
    gone_ = true;
    try {
      io_.post([self = shared_from_this()] { self->drop(); });
    } catch (const std::bad_alloc&) {
      io_.wake_all_soon();
    }
    return false;
  }
  if (chunked_) {
    const std::string size = fmt::format("{:x}\r\n", data.size());
    pending_.reserve(pending_.size() + size.size() + data.size() + 2);
    pending_ += size;
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
  if (chunked_) pending_ += "0\r\n\r\n";
  ended_ = true;
  wake();
}

void Exchange::abandon() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  io_.wake_all_soon();
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
  try {
    io_.post([weak = connection_] {
      if (const auto connection = weak.lock()) connection->wake();
    });
    wake_posted_ = true;
  } catch (const std::bad_alloc&) {
    io_.wake_all_soon();
  }
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
  const std::lock_guard lock(mutex_);
  wake();
}

void Exchange::drop() {
  client_gone();
  if (const auto connection = connection_.lock()) connection->sever();
}

}  // namespace pelton::server
