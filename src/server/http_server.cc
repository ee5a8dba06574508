// Boost.Asio drives sockets and timers, Boost.Beast reads bodies; heads are read by parse_head()
// and answers are written by hand. The only file that knows either library, and a place that
// catches what they throw.
#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <mutex>
#include <set>

#include "base/thread_turns.h"
#include "server/http_exchange.h"
#include "server/http_head.h"
#include "server/tls.h"

namespace pelton::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16u << 10;
// Pipelined bytes that are kept while an answer is being made; who sends more is dropped, or else
// nobody would notice that it has left.
constexpr size_t kMaxPipelined = 64u << 10;
constexpr size_t kTlsPiece = 64u << 10;  // plaintext that is encrypted at once
constexpr size_t kLingerBytes = 32u << 20;
constexpr std::chrono::milliseconds kLookAfter{50};

// What a connection's coroutine throws ends that connection alone.
constexpr auto kAlone = [](const std::exception_ptr&) {};

class Server;

class Session final : public ExchangeConnection, public std::enable_shared_from_this<Session> {
 public:
  Session(Server& server, tcp::socket socket);
  ~Session();
  awaitable<void> run();
  void wake() override { event_.cancel(); }
  void close_if_idle() {
    if (idle_) interrupt();
  }
  void sever() override {
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
  awaitable<bool> secure();
  error_code pull();
  awaitable<error_code> receive();
  awaitable<bool> send(std::string bytes);
  awaitable<bool> send_raw(std::string bytes);
  void say_goodbye();
  awaitable<Next> answer(std::shared_ptr<Exchange> exchange);
  awaitable<void> watch(std::shared_ptr<Exchange> exchange);
  awaitable<void> linger();
  // Ends what waits for the socket; nothing when that is closed.
  void interrupt() {
    error_code ignored;
    socket_.cancel(ignored);
  }
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
  std::unique_ptr<TlsConnection> tls_;  // null: plain
  boost::beast::flat_buffer buffer_;
  size_t head_bytes_ = 0;
  uint64_t epoch_ = 0;
  bool expired_ = false;
  bool idle_ = false;
  bool watching_ = false;
  bool severed_ = false;
};

class Server final : public HttpServer, public IoThread {
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

  void post(std::function<void()> task) override { asio::post(io_, std::move(task)); }
  void wake_all_soon() override { wake_all_ = true; }

  asio::io_context& io() { return io_; }
  HttpHandler& handler() { return handler_; }
  const HttpLimits& limits() const { return options_.limits; }
  const TlsContext* tls() const { return options_.tls.get(); }
  // For one read; on the I/O thread.
  std::array<char, kReadBytes>& scratch() { return scratch_; }
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
  void start_accepting();
  awaitable<void> accept_all();
  void look_after();
  void take(tcp::socket socket);
  void wait_signal();
  void tick(size_t index);
  void tick_again();

  struct Periodic {
    std::chrono::milliseconds period;
    std::function<void()> task;
    asio::steady_timer timer;
    bool armed = false;
  };

  void unwind();

  HttpServerOptions options_;
  HttpHandler& handler_;
  std::array<char, kReadBytes> scratch_;
  std::set<Session*> sessions_;
  std::atomic<int> connections_{0};
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  std::function<void()> signal_callback_;
  std::vector<std::unique_ptr<Periodic>> periodic_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> wake_all_{false};
  bool accepting_ = false;
  uint16_t port_ = 0;
};

// ---- Session

Session::Session(Server& server, tcp::socket socket)
    : server_(server),
      socket_(std::move(socket)),
      deadline_(server.io()),
      event_(server.io(), asio::steady_timer::time_point::max()) {
  if (server.tls() != nullptr) {
    tls_ = server.tls()->accept();
    if (!tls_) throw std::bad_alloc();
  }
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
    self->interrupt();
  });
}

void Session::disarm() {
  ++epoch_;
  deadline_.cancel();
}

awaitable<void> Session::run() {
  const auto self = shared_from_this();
  bool open = true;
  if (tls_) open = co_await secure();
  while (open) {
    const Next next = co_await serve_one();
    open = next == Next::kGoOn;
  }
  disarm();
  say_goodbye();
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
    const error_code ec = co_await receive();
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
  while (!parser.is_done()) {
    ec = http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.cdata(), ec));
    if (!ec) continue;
    if (ec != http::error::need_more) break;
    const error_code lost = co_await receive();
    if (lost && expired_) co_return 408;
    if (lost) co_return -1;
    ec = {};
  }
  disarm();
  if (ec == http::error::body_limit) co_return 413;
  if (ec) co_return 400;
  *body = std::move(parser.get().body());
  co_return 0;
}

// What the socket holds now, decrypted, behind what is buffered.
error_code Session::pull() {
  std::array<char, kReadBytes>& scratch = server_.scratch();
  const auto keep = [&](size_t count) {
    asio::buffer_copy(buffer_.prepare(count), asio::buffer(scratch.data(), count));
    buffer_.commit(count);
    return error_code();
  };
  error_code ec;
  while (true) {
    if (tls_) {
      if (const size_t count = tls_->read(scratch.data(), scratch.size()); count > 0)
        return keep(count);
      if (tls_->ended()) return asio::error::eof;
    }
    const size_t got = socket_.read_some(asio::buffer(scratch), ec);
    if (ec) return ec;
    if (!tls_) return keep(got);
    if (!tls_->put({scratch.data(), got})) return asio::error::no_memory;
  }
}

// Waits for bytes; an idle connection holds no buffer for them meanwhile.
awaitable<error_code> Session::receive() {
  while (true) {
    const error_code ec = pull();
    if (ec != asio::error::would_block) co_return ec;
    auto [wait_error] = co_await socket_.async_wait(tcp::socket::wait_read, kAwait);
    if (wait_error) co_return wait_error;
  }
}

// The handshake, in the time that a request's head has.
awaitable<bool> Session::secure() {
  arm(server_.limits().header_timeout);
  while (true) {
    const auto state = tls_->handshake();
    // A few kilobytes for a fresh socket: a peer that has no room for them is not waited for.
    const std::string answer = tls_->take_output();
    error_code ec;
    if (!answer.empty() &&
        socket_.write_some(asio::buffer(answer.data(), answer.size()), ec) != answer.size())
      co_return false;
    if (state == TlsConnection::State::kOpen) break;
    if (state == TlsConnection::State::kFailed || ec) co_return false;
    std::array<char, kReadBytes>& scratch = server_.scratch();
    const size_t got = socket_.read_some(asio::buffer(scratch), ec);
    if (ec == asio::error::would_block) {
      auto [wait_error] = co_await socket_.async_wait(tcp::socket::wait_read, kAwait);
      if (wait_error) co_return false;
    } else if (ec || !tls_->put({scratch.data(), got})) {
      co_return false;
    }
  }
  disarm();
  co_return true;
}

awaitable<bool> Session::send(std::string bytes) {
  if (!tls_) {
    const bool sent = co_await send_raw(std::move(bytes));
    co_return sent;
  }
  for (size_t at = 0; at < bytes.size(); at += kTlsPiece) {
    if (!tls_->write(std::string_view(bytes).substr(at, kTlsPiece))) co_return false;
    const bool sent = co_await send_raw(tls_->take_output());
    if (!sent) co_return false;
  }
  co_return true;
}

awaitable<bool> Session::send_raw(std::string bytes) {
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

// That nothing more comes; as far as it fits the socket now.
void Session::say_goodbye() {
  if (!tls_) return;
  tls_->finish();
  const std::string bytes = tls_->take_output();
  error_code ignored;
  if (!bytes.empty()) socket_.write_some(asio::buffer(bytes.data(), bytes.size()), ignored);
}

// What the client still sends is read for a while, so that a reset does not overtake the answer.
awaitable<void> Session::linger() {
  error_code ec;
  say_goodbye();
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  arm(std::chrono::milliseconds(2000));
  size_t total = 0;
  while (total < kLingerBytes) {
    total += buffer_.size();
    buffer_.consume(buffer_.size());
    const error_code error = co_await receive();
    if (error) break;
  }
  disarm();
}

awaitable<Session::Next> Session::refuse_early(HttpResponse response, const HttpHead& head) {
  const bool unread = head.has_body();
  if (unread) response.close = true;
  auto exchange = std::make_shared<Exchange>(server_, weak_from_this(), head, std::string(),
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
  // Others come between a client's requests, however many of them it sent at once.
  co_await asio::post(server_.io(), kAwait);
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
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
  const size_t limit = server_.limits().body_bytes.value_or(kBodyBytes);
  const int status = co_await read_body(parsed.head, limit, &body);
  if (status == -1) co_return Next::kClose;
  if (status != 0) {
    const std::string reason = status == 413 ? fmt::format("the body has more than {} bytes", limit)
                               : status == 408 ? "the body took too long"
                                               : "the body's framing is malformed";
    head_bytes_ = 0;
    HttpResponse response{
        .status = status, .body = handler.error_body(status, reason), .close = true};
    const Next next = co_await refuse_early(std::move(response), parsed.head);
    co_return next;
  }
  auto exchange = std::make_shared<Exchange>(server_, weak_from_this(), std::move(parsed.head),
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
  watching_ = true;
  asio::co_spawn(server_.io(), watch(exchange), kAlone);
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
    interrupt();
    event_.expires_at(asio::steady_timer::time_point::max());
    co_await event_.async_wait(kAwait);
  }
  if (!socket_.is_open()) co_return Next::kClose;
  co_return keep_alive ? Next::kGoOn : Next::kClose;
}

// Reads on while an answer is being made, so that a client that leaves is noticed.
awaitable<void> Session::watch(std::shared_ptr<Exchange> exchange) {
  const auto self = shared_from_this();
  // What came with the request itself may be more.
  const size_t room = std::max(buffer_.size(), kMaxPipelined);
  error_code ec;
  while (!ec && buffer_.size() <= room) ec = co_await receive();
  const bool gone = ec != asio::error::operation_aborted;
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
    take(std::move(socket));
  }
}

// A connection that there is no memory for is closed; the next may have more luck.
void Server::take(tcp::socket socket) {
  try {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    auto session = std::make_shared<Session>(*this, std::move(socket));
    asio::co_spawn(io_, session->run(), kAlone);
  } catch (const std::exception&) {
  }
}

Status Server::run() {
  prefer_short_turns();
  every(kLookAfter, [this] { look_after(); });
  start_accepting();
  for (size_t i = 0; i < periodic_.size(); ++i) tick(i);
  int failures = 0;  // in a row
  auto last = std::chrono::steady_clock::now();
  while (failures < 100) {
    try {
      io_.run();
      unwind();
      return {};
    } catch (const std::exception&) {
      // Of one task; the others go on.
      const auto now = std::chrono::steady_clock::now();
      failures = now - last < kLookAfter ? failures + 1 : 0;
      last = now;
      tick_again();
    }
  }
  return internal_error("the network loop failed again and again");
}

// Accepts until the listener is closed; again after a lack of memory ended it.
void Server::start_accepting() {
  accepting_ = true;
  try {
    asio::co_spawn(io_, accept_all(), [this](const std::exception_ptr&) { accepting_ = false; });
  } catch (const std::exception&) {
    accepting_ = false;
  }
}

// What was left undone for want of memory.
void Server::look_after() {
  if (!accepting_ && acceptor_.is_open()) start_accepting();
  tick_again();
  if (!wake_all_.exchange(false)) return;
  for (Session* session : sessions_) session->wake();
}

// After stop(): every coroutine runs to its end, so that none outlives what it uses.
void Server::unwind() {
  error_code ignored;
  acceptor_.close(ignored);
  signals_.cancel(ignored);
  for (const auto& periodic : periodic_) periodic->timer.cancel();
  for (Session* session : sessions_) session->sever();
  io_.restart();
  for (size_t ran = 1; !sessions_.empty() && ran > 0;) {
    try {
      ran = io_.poll();
    } catch (const std::exception&) {
      // Of one task; the others go on.
    }
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
  periodic.armed = false;
  periodic.timer.expires_after(periodic.period);
  periodic.timer.async_wait([this, index](error_code ec) {
    if (ec) return;
    tick(index);
    periodic_[index]->task();
  });
  periodic.armed = true;
}

// Those that a lack of memory has stopped.
void Server::tick_again() {
  for (size_t i = 0; i < periodic_.size(); ++i) {
    try {
      if (!periodic_[i]->armed) tick(i);
    } catch (const std::exception&) {
      // The next fault, or the next that works, tries again.
    }
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options,
                                                       HttpHandler& handler) {
  auto server = std::make_unique<Server>(options, handler);
  if (Status s = server->open(); !s.ok()) return s;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace pelton::server
