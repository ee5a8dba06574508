// The HTTP server under clients of all kinds, with a handler that answers from other threads: what
// the thread sanitizer watches.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "server/http_server.h"
#include "server/live_client.h"
#include "server/worker_pool.h"

namespace pelton::server {
namespace {

using namespace std::chrono_literals;

// /whole: the body back, from a worker; /stream: the body again and again, from another, until the
// client has gone or `kPieces` are out; /refused: before the body.
class Echo final : public HttpHandler {
 public:
  static constexpr int kPieces = 200;

  std::optional<HttpResponse> refuse(const HttpHead& head) override {
    if (head.path != "/refused") return std::nullopt;
    return HttpResponse{.status = 403};
  }

  void handle(std::shared_ptr<HttpExchange> exchange) override {
    ++begun;
    auto gone = std::make_shared<std::atomic<bool>>(false);
    exchange->on_gone([gone] { *gone = true; });
    workers_.post([this, exchange, gone] {
      if (exchange->head().path == "/whole") {
        exchange->respond({.body = exchange->body()});
      } else {
        exchange->begin_stream({.content_type = "text/plain"});
        for (int i = 0; i < kPieces && !*gone; ++i) {
          if (!exchange->write(exchange->body())) break;
        }
        exchange->end_stream();
      }
      ++ended;
    });
  }

  std::string error_body(int, std::string_view message) override { return std::string(message); }
  void stop() { workers_.stop(); }

  std::atomic<int> begun{0};
  std::atomic<int> ended{0};

 private:
  WorkerPool workers_{3};
};

struct Live {
  explicit Live(HttpServerOptions options = {}) {
    options.port = 0;
    auto made = HttpServer::listen(options, echo);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    server = std::move(made).value();
    server->every(1ms, [this] { ++ticks; });
    thread = std::thread([this] { EXPECT_TRUE(server->run().ok()); });
  }
  ~Live() {
    server->close_listener();
    server->stop();
    thread.join();
    echo.stop();
  }
  std::string ask(std::string_view path, const std::string& body) const {
    const Client client(server->port());
    client.send(request(path, body));
    return client.read_all();
  }

  Echo echo;
  std::unique_ptr<HttpServer> server;
  std::atomic<int> ticks{0};
  std::thread thread;
};

TEST(HttpLive, ClientsOfAllKindsAtOnce) {
  Live live;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 6; ++seed) {
    threads.emplace_back([&live, &wrong, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 40; ++round) {
        const std::string body(random() % 3000 + 1, 'x');
        const uint16_t port = live.server->port();
        switch (random() % 6) {
          case 0: {
            const std::string answer = live.ask("/whole", body);
            if (!says(answer, 200) || !answer.ends_with("\r\n\r\n" + body)) ++wrong;
            break;
          }
          case 1:
            if (!live.ask("/stream", "piece").ends_with("\r\n0\r\n\r\n")) ++wrong;
            break;
          case 2: {  // leaves in the middle
            const Client client(port);
            client.send(request("/stream", body));
            client.read_some(100);
            if (random() % 2 == 0) client.reset();
            break;
          }
          case 3: {  // does not read: dropped
            const Client client(port, 2048);
            client.send(request("/stream", body));
            break;
          }
          case 4:
            if (!says(live.ask("/refused", body), 403)) ++wrong;
            break;
          default: {
            const Client client(port);
            client.send("\x01garbage\n\r\n");
            if (!says(client.read_all(), 400)) ++wrong;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  while (live.echo.ended != live.echo.begun || live.server->open_connections() > 0)
    std::this_thread::sleep_for(1ms);
  EXPECT_GT(live.ticks, 0);
}

TEST(HttpLive, StopsWithStreamsAndSilentClientsOpen) {
  auto live = std::make_unique<Live>();
  const Client silent(live->server->port());
  const Client half(live->server->port());
  half.send("POST /whole HTTP/1.1\r\nHost: ");
  const Client slow(live->server->port(), 2048);
  slow.send(request("/stream", std::string(1000, 'x')));
  while (live->echo.begun == 0) std::this_thread::sleep_for(1ms);
  live.reset();
  EXPECT_EQ(silent.read_some(1), "");
}

TEST(HttpLive, WhoDoesNotReadIsDroppedAlone) {
  HttpServerOptions options;
  options.limits.output_bytes = 1000;
  Live live(std::move(options));
  const Client slow(live.server->port(), 2048);
  // Far more than the sockets hold.
  slow.send(request("/stream", std::string(100'000, 'x')));
  while (live.echo.ended == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(says(live.ask("/whole", "others"), 200));
  EXPECT_LT(slow.read_all().size(), size_t{Echo::kPieces} * 100'000);
}

}  // namespace
}  // namespace pelton::server
