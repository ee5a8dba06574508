// Boost.Asio drives sockets, timers and TLS, Boost.Beast reads answers. The only file of this
// folder that knows either library, and a place that turns what they throw into a status.
#include "bench_serve/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include "base/quote.h"
#include "base/thread_turns.h"
#include "bench_serve/answer_reader.h"
#include "bench_serve/sse_reader.h"

namespace pelton::bench_serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16384;
constexpr size_t kMaxErrorBody = 4096;
constexpr uint32_t kMaxHead = 64u << 10;
constexpr std::string_view kDone = "[DONE]";

// What a coroutine throws leaves run() of the context.
constexpr auto kRethrow = [](const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
};

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

using SecureStream = ssl::stream<tcp::socket&>;

struct Connection {
  // `tls`: null for plain HTTP.
  Connection(asio::io_context& io, ssl::context* tls) : socket(io), patience(io) {
    if (tls != nullptr) secure = std::make_unique<SecureStream>(socket, *tls);
  }

  tcp::socket socket;
  std::unique_ptr<SecureStream> secure;  // over the socket
  asio::steady_timer patience;
  boost::beast::flat_buffer buffer;
  uint64_t use = 0;  // tells a late timer that its request is over
  bool expired = false;
  bool reused = false;
};

// Null when the target speaks plain HTTP.
Result<std::unique_ptr<ssl::context>> make_tls(const Target& target) {
  if (!target.https) return std::unique_ptr<ssl::context>();
  auto tls = std::make_unique<ssl::context>(ssl::context::tls_client);
  error_code ec;
  if (target.insecure) {
    tls->set_verify_mode(ssl::verify_none, ec);
  } else {
    tls->set_verify_mode(ssl::verify_peer, ec);
    tls->set_verify_callback(ssl::host_name_verification(target.host), ec);
    if (target.ca_file.empty()) {
      tls->set_default_verify_paths(ec);
    } else {
      tls->load_verify_file(target.ca_file, ec);
    }
  }
  if (ec) return invalid_argument("--cacert: " + target.ca_file + ": " + ec.message());
  return tls;
}

// Connects and, where the target wants it, agrees on TLS.
awaitable<error_code> open(Connection& connection, const tcp::resolver::results_type& addresses,
                           const Target& target) {
  error_code ec;
  std::tie(ec, std::ignore) = co_await asio::async_connect(connection.socket, addresses, kAwait);
  if (ec) co_return ec;
  error_code ignored;
  connection.socket.set_option(tcp::no_delay(true), ignored);
  if (!connection.secure) co_return ec;
  SSL_set_tlsext_host_name(connection.secure->native_handle(), target.host.c_str());
  std::tie(ec) = co_await connection.secure->async_handshake(ssl::stream_base::client, kAwait);
  co_return ec;
}

// The other side has closed: also without TLS's own farewell.
bool is_closed(const error_code& ec) {
  return ec == http::error::end_of_stream || ec == asio::error::connection_reset ||
         ec == ssl::error::stream_truncated;
}

// One answer on its way in.
struct Answer {
  Record* record = nullptr;
  SseReader events;
  double last = 0;  // time of the last piece of text
  int64_t pieces = 0;
  bool done = false;  // [DONE] came
  bool finished = false;
  bool malformed = false;
  std::optional<TokenCounts> usage;
  std::optional<std::string> error;
  std::string plain;  // the beginning of a body that is no event stream
};

class Load {
 public:
  Load(const LoadOptions& options, const std::vector<PlannedRequest>& requests)
      : options_(options), requests_(requests), records_(requests.size()), free_(io_) {}

  Result<std::vector<Record>> run();

 private:
  awaitable<void> dispatch();
  awaitable<void> serve(size_t index);
  awaitable<bool> attempt(size_t index, const std::shared_ptr<Connection>& connection);
  awaitable<error_code> send(Connection& connection, const std::string& body);
  template <typename Stream>
  awaitable<bool> receive(Stream& stream, Connection& connection, Answer* answer, bool* keep);
  std::shared_ptr<Connection> take_connection();
  void limit(const std::shared_ptr<Connection>& connection);
  void take_event(std::string_view data, Answer* answer);
  void conclude(Answer& answer);
  void fail(Record& record, Outcome outcome, std::string detail) const;
  void fail_transport(Record& record, const Connection& connection, const error_code& ec) const;
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const LoadOptions& options_;
  const std::vector<PlannedRequest>& requests_;
  std::vector<Record> records_;
  asio::io_context io_{1};
  asio::steady_timer free_;  // cancelled when a request ends
  tcp::resolver::results_type addresses_;
  std::unique_ptr<ssl::context> tls_;
  std::vector<std::shared_ptr<Connection>> idle_;
  AnswerReader reader_;
  Clock::time_point start_;
  int active_ = 0;
  int ended_ = 0;
};

Result<tcp::resolver::results_type> resolve(asio::io_context& io, const Target& target) {
  tcp::resolver resolver(io);
  error_code ec;
  auto found = resolver.resolve(target.host, target.port, ec);
  if (ec) return io_error("--url: " + quote(target.host) + ": " + ec.message());
  return found;
}

std::string host_header(const Target& target) {
  const bool v6 = target.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", target.host, v6 ? "]" : "", target.port);
}

Result<std::vector<Record>> Load::run() {
  auto addresses = resolve(io_, options_.target);
  if (!addresses.ok()) return addresses.status();
  addresses_ = *addresses;
  auto tls = make_tls(options_.target);
  if (!tls.ok()) return tls.status();
  tls_ = std::move(tls).value();
  start_ = Clock::now();
  asio::co_spawn(io_, dispatch(), kRethrow);
  io_.run();
  return std::move(records_);
}

awaitable<void> Load::dispatch() {
  asio::steady_timer due(io_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (const double wait = requests_[i].due - now(); wait > 0) {
      due.expires_after(seconds(wait));
      co_await due.async_wait(kAwait);
    }
    while (options_.max_concurrency > 0 && active_ >= options_.max_concurrency) {
      free_.expires_at(asio::steady_timer::time_point::max());
      co_await free_.async_wait(kAwait);
    }
    ++active_;
    asio::co_spawn(io_, serve(i), kRethrow);
  }
}

awaitable<void> Load::serve(size_t index) {
  Record& record = records_[index];
  record.index = static_cast<int>(index);
  record.due = requests_[index].due;
  record.prompt_tokens = requests_[index].planned_tokens;
  record.shares_prefix = requests_[index].shares_prefix;
  record.sent = now();
  // A server may close a kept connection just when it is used again: that is no fault of its own.
  while (true) {
    const auto connection = take_connection();
    const bool again = co_await attempt(index, connection);
    ++connection->use;
    connection->patience.cancel();
    if (!again) break;
  }
  if (record.ended == 0) record.ended = now();
  --active_;
  free_.cancel();
  ++ended_;
  if (options_.progress) options_.progress(ended_);
}

std::shared_ptr<Connection> Load::take_connection() {
  if (idle_.empty()) return std::make_shared<Connection>(io_, tls_.get());
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  connection->reused = true;
  return connection;
}

void Load::limit(const std::shared_ptr<Connection>& connection) {
  connection->expired = false;
  connection->patience.expires_after(seconds(options_.timeout_s));
  connection->patience.async_wait(
      [weak = std::weak_ptr(connection), use = connection->use](error_code ec) {
        const auto self = weak.lock();
        if (ec || !self || self->use != use) return;
        self->expired = true;
        error_code ignored;
        self->socket.close(ignored);
      });
}

// True: to be tried again on another connection.
awaitable<bool> Load::attempt(size_t index, const std::shared_ptr<Connection>& connection) {
  Record& record = records_[index];
  limit(connection);
  if (!connection->reused) {
    const error_code ec = co_await open(*connection, addresses_, options_.target);
    if (ec) {
      const Outcome outcome = connection->expired ? Outcome::kTimeout : Outcome::kConnect;
      fail(record, outcome, ec.message());
      co_return false;
    }
  }
  if (const error_code ec = co_await send(*connection, requests_[index].body); ec) {
    if (connection->reused && !connection->expired) co_return true;
    fail_transport(record, *connection, ec);
    co_return false;
  }
  Answer answer;
  answer.record = &record;
  bool keep = false;
  bool came = false;
  if (connection->secure) {
    came = co_await receive(*connection->secure, *connection, &answer, &keep);
  } else {
    came = co_await receive(connection->socket, *connection, &answer, &keep);
  }
  if (!came) co_return true;
  if (keep) idle_.push_back(connection);
  co_return false;
}

awaitable<error_code> Load::send(Connection& connection, const std::string& body) {
  std::string head = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: "
      "text/event-stream\r\nContent-Length: {}\r\n",
      route(options_.target, options_.chat), host_header(options_.target), body.size());
  if (!options_.target.api_key.empty())
    head += fmt::format("Authorization: Bearer {}\r\n", options_.target.api_key);
  head += "\r\n";
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  error_code ec;
  if (connection.secure) {
    std::tie(ec, std::ignore) = co_await asio::async_write(*connection.secure, parts, kAwait);
  } else {
    std::tie(ec, std::ignore) = co_await asio::async_write(connection.socket, parts, kAwait);
  }
  co_return ec;
}

// False: the kept connection was closed before a byte came.
template <typename Stream>
awaitable<bool> Load::receive(Stream& stream, Connection& connection, Answer* answer, bool* keep) {
  Record& record = *answer->record;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.header_limit(kMaxHead);
  error_code ec;
  std::tie(ec, std::ignore) =
      co_await http::async_read_header(stream, connection.buffer, parser, kAwait);
  if (ec) {
    if (is_closed(ec) && connection.reused && !connection.expired) co_return false;
    fail_transport(record, connection, ec);
    co_return true;
  }
  record.http_status = static_cast<int>(parser.get().result_int());
  const bool events = parser.get()[http::field::content_type].starts_with("text/event-stream");
  std::array<char, kReadBytes> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    std::tie(ec, std::ignore) =
        co_await http::async_read_some(stream, connection.buffer, parser, kAwait);
    if (ec && ec != http::error::need_buffer) break;
    ec = {};
    const std::string_view got(bytes.data(), bytes.size() - parser.get().body().size);
    if (!events || record.http_status != 200) {
      answer->plain += got.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, answer->plain.size()));
      continue;
    }
    const auto take = [&](std::string_view data) { take_event(data, answer); };
    if (!answer->events.feed(got, take)) answer->malformed = true;
    if (answer->malformed) break;
  }
  record.ended = now();
  if (ec && !answer->done) {
    fail_transport(record, connection, ec);
    co_return true;
  }
  conclude(*answer);
  *keep = !ec && parser.is_done() && parser.keep_alive() && record.outcome != Outcome::kMalformed;
  co_return true;
}

void Load::take_event(std::string_view data, Answer* answer) {
  if (data == kDone) {
    answer->done = true;
    return;
  }
  const double time = now();
  const Piece piece = reader_.read(data);
  if (!piece.well_formed) {
    answer->malformed = true;
    return;
  }
  if (piece.error && !answer->error) answer->error = piece.error;
  if (piece.usage) answer->usage = piece.usage;
  answer->finished |= piece.finished;
  if (!piece.has_text) return;
  if (answer->pieces++ == 0) {
    answer->record->first = time;
  } else {
    answer->record->gaps.push_back(time - answer->last);
  }
  answer->last = time;
}

// The connection brought what it had to bring: what was it?
void Load::conclude(Answer& answer) {
  Record& record = *answer.record;
  if (record.http_status != 200) {
    const Piece piece = reader_.read(answer.plain);
    return fail(record, Outcome::kHttp, piece.error.value_or(quote(answer.plain, 120)));
  }
  if (answer.malformed || !answer.plain.empty())
    return fail(record, Outcome::kMalformed, "the answer is not an event stream of JSON");
  if (answer.error) return fail(record, Outcome::kError, *answer.error);
  if (!answer.done && !answer.finished)
    return fail(record, Outcome::kCut, "the stream ended before the answer did");
  record.counted_by_server = answer.usage && answer.usage->completion > 0;
  record.output_tokens = record.counted_by_server ? answer.usage->completion : answer.pieces;
  if (answer.usage && answer.usage->prompt > 0) {
    record.prompt_tokens = answer.usage->prompt;
    record.cached_tokens = std::min(answer.usage->cached, answer.usage->prompt);
  }
  if (answer.pieces > 0) return;
  if (!record.counted_by_server) return fail(record, Outcome::kEmpty, "an answer without a token");
  record.first = record.ended;  // tokens that are no text are seen when all are there
}

void Load::fail(Record& record, Outcome outcome, std::string detail) const {
  record.outcome = outcome;
  record.detail = std::move(detail);
  record.ended = now();
}

void Load::fail_transport(Record& record, const Connection& connection,
                          const error_code& ec) const {
  if (connection.expired) return fail(record, Outcome::kTimeout, "no answer within --timeout");
  const bool cut = is_closed(ec) || ec == http::error::partial_message ||
                   ec.category() == boost::system::system_category() ||
                   ec.category() == asio::error::get_misc_category();
  fail(record, cut ? Outcome::kCut : Outcome::kMalformed, ec.message());
}

template <typename Stream>
awaitable<error_code> ask(Stream& stream, const http::request<http::empty_body>& request,
                          http::response<http::string_body>* response) {
  boost::beast::flat_buffer buffer;
  error_code ec;
  std::tie(ec, std::ignore) = co_await http::async_write(stream, request, kAwait);
  if (!ec) std::tie(ec, std::ignore) = co_await http::async_read(stream, buffer, *response, kAwait);
  co_return ec;
}

awaitable<void> get(Connection& connection, const tcp::resolver::results_type& addresses,
                    const Target& target, const std::string& path, Result<std::string>* out) {
  error_code ec = co_await open(connection, addresses, target);
  if (ec) {
    *out = io_error(host_header(target) + ": " + ec.message());
    co_return;
  }
  http::request<http::empty_body> request(http::verb::get, path, 11);
  request.set(http::field::host, host_header(target));
  if (!target.api_key.empty()) request.set(http::field::authorization, "Bearer " + target.api_key);
  http::response<http::string_body> response;
  if (connection.secure) {
    ec = co_await ask(*connection.secure, request, &response);
  } else {
    ec = co_await ask(connection.socket, request, &response);
  }
  if (ec) {
    *out = io_error(host_header(target) + path + ": " + ec.message());
  } else if (response.result_int() != 200) {
    *out =
        io_error(fmt::format("{}{}: status {}", host_header(target), path, response.result_int()));
  } else {
    *out = std::move(response.body());
  }
}

// The libraries throw for want of memory or of a file descriptor only.
template <typename T, typename Work>
Result<T> guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory");
  } catch (const boost::system::system_error& error) {
    return io_error(error.what());
  }
}

}  // namespace

Result<std::vector<Record>> run_load(const LoadOptions& options,
                                     const std::vector<PlannedRequest>& requests) {
  prefer_short_turns();  // times are this thread's own: it should not wait for a core to take them
  return guarded<std::vector<Record>>([&] { return Load(options, requests).run(); });
}

Result<std::string> http_get(const Target& target, const std::string& path, double timeout_s) {
  return guarded<std::string>([&]() -> Result<std::string> {
    asio::io_context io(1);
    auto addresses = resolve(io, target);
    if (!addresses.ok()) return addresses.status();
    Result<std::string> out = io_error(host_header(target) + path + ": no answer in time");
    auto tls = make_tls(target);
    if (!tls.ok()) return tls.status();
    Connection connection(io, tls->get());
    const std::string whole =
        target.base + path;  // outlives the coroutine, as all of its arguments
    asio::co_spawn(io, get(connection, *addresses, target, whole, &out), kRethrow);
    io.run_for(seconds(timeout_s));
    return out;
  });
}

}  // namespace pelton::bench_serve
