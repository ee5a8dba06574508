// Boost.Asio drives sockets and timers, Boost.Beast reads bodies; heads are read by parse_head()
// and answers are written by hand. The only file that knows either library, and a place that
// catches what they throw.
#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <mutex>
#include <set>

#include "server/http_head.h"

namespace pelton::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 8192;
// Pipelined bytes that are kept while an answer is being made; then reading pauses.
constexpr size_t kMaxPipelined = 64u << 10;
constexpr size_t kLingerBytes = 32u << 20;

class Session;

// Shared between the session's coroutine and whoever answers.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& io, std::weak_ptr<Session> session, HttpHead head, std::string body,
           size_t output_limit)
      : io_(io),
        session_(std::move(session)),
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
  void on_gone(std::function<void()> callback) override;
  void post(std::function<void()> task) override { asio::post(io_, std::move(task)); }

  // For the session, on the I/O thread.
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
  void write_head(const HttpResponse& response, std::optional<size_t> length);
  void wake();

  asio::io_context& io_;
  std::weak_ptr<Session> session_;
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

class Server;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Server& server, tcp::socket socket);
  ~Session();
  awaitable<void> run();
  void wake() { event_.cancel(); }
  void close_if_idle() {
    if (idle_) socket_.cancel();
  }
  void sever() {
    severed_ = true;
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    event_.cancel();
  }

 private:
  enum class Next { kClose, kGoOn };
  awaitable<ParsedHead> read_head();
  awaitable<Next> serve_one();
  awaitable<Next> refuse_early(HttpResponse response, const HttpHead& head);
  awaitable<int> read_body(const HttpHead& head, size_t head_bytes, std::string* body);
  awaitable<bool> send(std::string bytes);
  awaitable<Next> answer(std::shared_ptr<Exchange> exchange);
  awaitable<void> watch(std::shared_ptr<Exchange> exchange);
  awaitable<void> linger();
  void arm(std::chrono::milliseconds time);
  void disarm();
  std::string_view buffered() const {
    const auto data = buffer_.cdata();
    return {static_cast<const char*>(data.data()), data.size()};
  }

  Server& server_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  asio::steady_timer event_;
  boost::beast::flat_buffer buffer_;
  size_t head_bytes_ = 0;
  uint64_t epoch_ = 0;
  bool expired_ = false;
  bool idle_ = false;
  bool watching_ = false;
  bool severed_ = false;
};

class Server final : public HttpServer {
 public:
  Server(const HttpServerOptions& options, HttpHandler& handler)
      : options_(options), handler_(handler), io_(1), acceptor_(io_), signals_(io_) {}

  Status open();
  uint16_t port() const override { return port_; }
  Status run() override;
  void close_listener() override;
  void stop() override { io_.stop(); }
  void on_signal(std::function<void()> callback) override;
  void every(std::chrono::milliseconds period, std::function<void()> task) override;
  int open_connections() const override { return connections_.load(); }
  int max_connections() const override { return options_.limits.connections; }

  asio::io_context& io() { return io_; }
  HttpHandler& handler() { return handler_; }
  const HttpLimits& limits() const { return options_.limits; }
  bool draining() const { return draining_.load(); }
  void enter(Session* session) {
    sessions_.insert(session);
    ++connections_;
  }
  void leave(Session* session) {
    sessions_.erase(session);
    --connections_;
  }

 private:
  awaitable<void> accept_all();
  void wait_signal();
  void tick(size_t index);

  struct Periodic {
    std::chrono::milliseconds period;
    std::function<void()> task;
    asio::steady_timer timer;
  };

  void unwind();

  HttpServerOptions options_;
  HttpHandler& handler_;
  std::set<Session*> sessions_;
  std::atomic<int> connections_{0};
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  std::function<void()> signal_callback_;
  std::vector<std::unique_ptr<Periodic>> periodic_;
  std::atomic<bool> draining_{false};
  uint16_t port_ = 0;
};

// ---- Exchange

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
    asio::post(io_, [self = shared_from_this()] { self->drop(); });
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
  asio::post(io_, std::move(callback));
}

void Exchange::wake() {
  if (wake_posted_) return;
  wake_posted_ = true;
  asio::post(io_, [weak = session_] {
    if (const auto session = weak.lock()) session->wake();
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
  if (const auto session = session_.lock()) session->sever();
}

// ---- Session

Session::Session(Server& server, tcp::socket socket)
    : server_(server),
      socket_(std::move(socket)),
      deadline_(server.io()),
      event_(server.io(), asio::steady_timer::time_point::max()) {
  server_.enter(this);
}

Session::~Session() { server_.leave(this); }

void Session::arm(std::chrono::milliseconds time) {
  expired_ = false;
  const uint64_t epoch = ++epoch_;
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this(), epoch](error_code ec) {
    const auto self = weak.lock();
    if (ec || !self || self->epoch_ != epoch) return;
    self->expired_ = true;
    self->socket_.cancel();
  });
}

void Session::disarm() {
  ++epoch_;
  deadline_.cancel();
}

awaitable<void> Session::run() {
  const auto self = shared_from_this();
  while (true) {
    const Next next = co_await serve_one();
    if (next == Next::kClose) break;
  }
  disarm();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

// status -1: the connection ends without a word.
awaitable<ParsedHead> Session::read_head() {
  const HttpLimits& limits = server_.limits();
  size_t scanned = 0;
  idle_ = buffer_.size() == 0;
  arm(idle_ ? limits.idle_timeout : limits.header_timeout);
  while (true) {
    const std::string_view data = buffered();
    for (; scanned < data.size(); ++scanned) {
      if (data[scanned] != '\n') continue;
      if (scanned == 0 || data[scanned - 1] != '\r')
        co_return ParsedHead{.status = 400, .reason = "a line does not end in CRLF"};
      if (scanned < 3 || data[scanned - 2] != '\n') continue;
      head_bytes_ = scanned + 1;
      disarm();
      co_return parse_head(data.substr(0, head_bytes_), limits);
    }
    if (data.size() > limits.header_bytes)
      co_return ParsedHead{.status = 431, .reason = "the headers are too large"};
    auto [ec, got] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    buffer_.commit(got);
    if (ec) {
      const bool slow = expired_ && !idle_;
      co_return ParsedHead{.status = slow ? 408 : -1, .reason = "the headers took too long"};
    }
    if (idle_) {
      idle_ = false;
      arm(limits.header_timeout);
    }
  }
}

// 0, or the status that refuses it; -1 when the client left.
awaitable<int> Session::read_body(const HttpHead& head, size_t limit, std::string* body) {
  http::request_parser<http::string_body> parser;
  parser.body_limit(limit);
  parser.header_limit(static_cast<uint32_t>(head_bytes_ + 1));
  parser.eager(false);
  error_code ec;
  parser.put(asio::buffer(buffered().data(), head_bytes_), ec);
  buffer_.consume(head_bytes_);
  if (ec == http::error::body_limit) co_return 413;
  if (ec && ec != http::error::need_more) co_return 400;
  if (parser.is_done()) co_return 0;
  if (head.expects_continue && buffer_.size() == 0) {
    const bool sent = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return -1;
  }
  arm(server_.limits().body_timeout);
  parser.eager(true);
  auto [read_error, got] = co_await http::async_read(socket_, buffer_, parser, kAwait);
  disarm();
  if (read_error == http::error::body_limit) co_return 413;
  if (expired_) co_return 408;
  if (read_error && read_error.category() == make_error_code(http::error::bad_chunk).category() &&
      read_error != http::error::partial_message && read_error != http::error::end_of_stream)
    co_return 400;
  if (read_error) co_return -1;
  *body = std::move(parser.get().body());
  co_return 0;
}

awaitable<bool> Session::send(std::string bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    error_code ec;
    const size_t sent = socket_.write_some(asio::buffer(rest.data(), rest.size()), ec);
    if (!ec) {
      rest.remove_prefix(sent);
      continue;
    }
    if (ec != asio::error::would_block) co_return false;
    arm(server_.limits().write_timeout);
    auto [wait_error] = co_await socket_.async_wait(tcp::socket::wait_write, kAwait);
    disarm();
    if (wait_error) co_return false;
  }
  co_return true;
}

// What the client still sends is read for a while, so that a reset does not overtake the answer.
awaitable<void> Session::linger() {
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  buffer_.consume(buffer_.size());
  arm(std::chrono::milliseconds(2000));
  size_t total = 0;
  while (total < kLingerBytes) {
    auto [error, got] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) break;
    total += got;
  }
  disarm();
}

awaitable<Session::Next> Session::refuse_early(HttpResponse response, const HttpHead& head) {
  const bool unread = head.has_body();
  if (unread) response.close = true;
  auto exchange = std::make_shared<Exchange>(server_.io(), weak_from_this(), head, std::string(),
                                             server_.limits().output_bytes);
  if (server_.draining()) exchange->refuse_keep_alive();
  exchange->respond(std::move(response));
  const Exchange::Output output = exchange->take();
  const bool sent = co_await send(output.bytes);
  if (!sent) co_return Next::kClose;
  if (!output.keep_alive) {
    co_await linger();
    co_return Next::kClose;
  }
  buffer_.consume(head_bytes_);
  co_return Next::kGoOn;
}

awaitable<Session::Next> Session::serve_one() {
  if (server_.draining() && buffer_.size() == 0) co_return Next::kClose;
  ParsedHead parsed = co_await read_head();
  idle_ = false;
  disarm();
  if (parsed.status == -1) co_return Next::kClose;
  HttpHandler& handler = server_.handler();
  if (parsed.status != 0) {
    HttpResponse response{.status = parsed.status,
                          .body = handler.error_body(parsed.status, parsed.reason),
                          .close = true};
    const Next next = co_await refuse_early(std::move(response), parsed.head);
    co_return next;
  }
  if (auto refusal = handler.refuse(parsed.head)) {
    const Next next = co_await refuse_early(std::move(*refusal), parsed.head);
    co_return next;
  }
  std::string body;
  const int status = co_await read_body(parsed.head, server_.limits().body_bytes, &body);
  if (status == -1) co_return Next::kClose;
  if (status != 0) {
    const std::string reason =
        status == 413 ? fmt::format("the body has more than {} bytes", server_.limits().body_bytes)
        : status == 408 ? "the body took too long"
                        : "the body's framing is malformed";
    head_bytes_ = 0;
    HttpResponse response{
        .status = status, .body = handler.error_body(status, reason), .close = true};
    const Next next = co_await refuse_early(std::move(response), parsed.head);
    co_return next;
  }
  auto exchange = std::make_shared<Exchange>(server_.io(), weak_from_this(), std::move(parsed.head),
                                             std::move(body), server_.limits().output_bytes);
  if (server_.draining()) exchange->refuse_keep_alive();
  handler.handle(exchange);
  const Next next = co_await answer(std::move(exchange));
  co_return next;
}

awaitable<Session::Next> Session::answer(std::shared_ptr<Exchange> exchange) {
  // However this ends, whoever makes the answer hears of it.
  struct Guard {
    Exchange* exchange;
    bool complete = false;
    ~Guard() {
      if (!complete) exchange->client_gone();
    }
  };
  Guard guard{exchange.get()};
  if (buffer_.size() < kMaxPipelined) {
    watching_ = true;
    asio::co_spawn(server_.io(), watch(exchange), asio::detached);
  }
  bool keep_alive = false;
  while (true) {
    Exchange::Output output = exchange->take();
    if (output.gone || severed_) break;
    if (!output.bytes.empty()) {
      const bool sent = co_await send(std::move(output.bytes));
      if (!sent) break;
      if (!output.ended) continue;
    }
    if (output.ended) {
      guard.complete = true;
      keep_alive = output.keep_alive;
      break;
    }
    event_.expires_at(asio::steady_timer::time_point::max());
    co_await event_.async_wait(kAwait);
  }
  if (!guard.complete) co_return Next::kClose;
  while (watching_ && socket_.is_open()) {
    socket_.cancel();
    event_.expires_at(asio::steady_timer::time_point::max());
    co_await event_.async_wait(kAwait);
  }
  if (!socket_.is_open()) co_return Next::kClose;
  if (buffer_.size() == 0 && buffer_.capacity() > kMaxPipelined) buffer_.shrink_to_fit();
  co_return keep_alive ? Next::kGoOn : Next::kClose;
}

// Reads on while an answer is being made, so that a client that leaves is noticed.
awaitable<void> Session::watch(std::shared_ptr<Exchange> exchange) {
  const auto self = shared_from_this();
  bool gone = false;
  while (buffer_.size() < kMaxPipelined) {
    auto [ec, got] = co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    buffer_.commit(got);
    if (ec) {
      gone = ec != asio::error::operation_aborted;
      break;
    }
  }
  watching_ = false;
  if (gone) exchange->client_gone();
  wake();
}

// ---- Server

Status Server::open() {
  rlimit files{};
  const auto wanted = static_cast<rlim_t>(options_.limits.connections) + 64;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < wanted) {
    rlimit raised = files;
    raised.rlim_cur = std::min(wanted, files.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
    const auto room = static_cast<int>(files.rlim_cur) - 64;
    options_.limits.connections = std::clamp(room, 1, options_.limits.connections);
  }
  error_code ec;
  const std::string host = options_.host == "localhost" ? "127.0.0.1" : options_.host;
  const auto address = asio::ip::make_address(host, ec);
  if (ec) return invalid_argument("--host: '" + options_.host + "' is not an IP address");
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(1024, ec);
  if (ec) {
    return io_error(
        fmt::format("cannot listen on {}:{}: {}", options_.host, options_.port, ec.message()));
  }
  port_ = acceptor_.local_endpoint(ec).port();
  return {};
}

awaitable<void> Server::accept_all() {
  while (acceptor_.is_open()) {
    auto [ec, socket] = co_await acceptor_.async_accept(kAwait);
    if (ec == asio::error::operation_aborted) break;
    if (ec) {
      // Out of descriptors, most likely: those that are open go on.
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(kAwait);
      continue;
    }
    if (connections_ >= options_.limits.connections) continue;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    auto session = std::make_shared<Session>(*this, std::move(socket));
    asio::co_spawn(io_, session->run(), asio::detached);
  }
}

Status Server::run() {
  asio::co_spawn(io_, accept_all(), asio::detached);
  for (size_t i = 0; i < periodic_.size(); ++i) tick(i);
  int failures = 0;
  while (failures < 100) {
    try {
      io_.run();
      unwind();
      return {};
    } catch (const std::exception&) {
      // Of one task; the others go on.
      ++failures;
    }
  }
  return internal_error("the network loop failed again and again");
}

// After stop(): every coroutine runs to its end, so that none outlives what it uses.
void Server::unwind() {
  error_code ignored;
  acceptor_.close(ignored);
  signals_.cancel(ignored);
  for (const auto& periodic : periodic_) periodic->timer.cancel();
  for (Session* session : sessions_) session->sever();
  io_.restart();
  while (!sessions_.empty() && io_.poll() > 0) {
  }
}

void Server::close_listener() {
  draining_ = true;
  asio::post(io_, [this] {
    error_code ignored;
    acceptor_.close(ignored);
    for (Session* session : sessions_) session->close_if_idle();
  });
}

void Server::on_signal(std::function<void()> callback) {
  signal_callback_ = std::move(callback);
  error_code ignored;
  signals_.add(SIGTERM, ignored);
  signals_.add(SIGINT, ignored);
  wait_signal();
}

void Server::wait_signal() {
  signals_.async_wait([this](error_code ec, int) {
    if (ec) return;
    signal_callback_();
    wait_signal();
  });
}

void Server::every(std::chrono::milliseconds period, std::function<void()> task) {
  periodic_.push_back(
      std::make_unique<Periodic>(Periodic{period, std::move(task), asio::steady_timer(io_)}));
}

void Server::tick(size_t index) {
  Periodic& periodic = *periodic_[index];
  periodic.timer.expires_after(periodic.period);
  periodic.timer.async_wait([this, index](error_code ec) {
    if (ec) return;
    tick(index);
    periodic_[index]->task();
  });
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options,
                                                       HttpHandler& handler) {
  auto server = std::make_unique<Server>(options, handler);
  if (Status s = server->open(); !s.ok()) return s;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace pelton::server
