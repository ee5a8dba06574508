// The whole server in this process, with clients on sockets beside it: what the thread sanitizer
// watches, and what needs a hand on the engine.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "server/live_client.h"
#include "server/service.h"
#include "tests/support/source_root.h"

namespace pelton::server {
namespace {

using namespace std::chrono_literals;

std::string completion(int tokens, bool stream, int n = 1) {
  return fmt::format(
      R"({{"prompt":"The river is","max_tokens":{},"temperature":0,"ignore_eos":true,"n":{},"stream":{}}})",
      tokens, n, stream);
}

class Live {
 public:
  explicit Live(ServiceOptions options = {}) {
    engine::EngineOptions engine_options;
    engine_options.threads = 2;
    engine_options.max_model_len = 512;
    engine_options.max_num_seqs = 4;
    auto files = engine::ModelFiles::open(pelton::source_root() / "tests/data/runnel-2m");
    auto engine = engine::Engine::load(std::move(files).value(), engine_options);
    engine_ = std::move(engine).value();
    options.http.port = 0;
    options.version = "test";
    options.log = [](const std::string&) {};
    auto service = Service::create(*engine_, std::move(options));
    EXPECT_TRUE(service.ok()) << service.status().to_string();
    service_ = std::move(service).value();
    thread_ = std::thread([this] { outcome_ = service_->run(); });
  }
  ~Live() {
    if (!thread_.joinable()) return;
    EXPECT_TRUE(end().ok());
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  // As SIGTERM does it, to the end of the drain.
  Status end() {
    std::raise(SIGTERM);
    thread_.join();
    return outcome_;
  }
  uint16_t port() const { return service_->port(); }
  Service& service() { return *service_; }
  engine::Engine& engine() { return *engine_; }

  std::string get(std::string_view path) const {
    const Client client(port());
    client.send(
        fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path));
    return client.read_all();
  }
  std::string post(std::string_view path, const std::string& body) const {
    const Client client(port());
    client.send(request(path, body));
    return client.read_all();
  }
  std::string text(int tokens) const {
    const std::string answer = post("/v1/completions", completion(tokens, false));
    const size_t head = answer.find("\r\n\r\n");
    if (head == std::string::npos) return answer;
    const auto json = nlohmann::json::parse(answer.substr(head + 4), nullptr, false);
    if (json.is_discarded() || !json.contains("choices")) return answer;
    return json["choices"][0]["text"];
  }
  // Waits until every request that the engine took has ended.
  engine::EngineMetrics settle() {
    engine::EngineMetrics m = engine_->metrics();
    for (int i = 0; i < 6000; ++i, m = engine_->metrics()) {
      if (m.requests == m.finished + m.cancelled + m.failed) break;
      std::this_thread::sleep_for(10ms);
    }
    return m;
  }

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  Status outcome_;
};

// An event sink that does not return: a step that hangs, for as long as a test likes.
class Hang {
 public:
  void operator()() {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false;
  bool released_ = false;
};

TEST(ServiceLive, HealthIsFalseWhileAStepHangsAndTrueAgain) {
  ServiceOptions options;
  options.step_watchdog = 50ms;
  Live live(std::move(options));
  EXPECT_TRUE(says(live.get("/health"), 200));
  Hang hang;
  Request request;
  request.prompt_ids = {1, 2, 3};
  request.sampling.max_tokens = 2;
  ASSERT_TRUE(live.service().loop().submit(request, [&](const TokenEvent&) { hang(); }).ok());
  hang.await();
  while (!says(live.get("/health"), 503)) std::this_thread::sleep_for(1ms);
  // Whoever asks is answered, and what needs no step works.
  EXPECT_TRUE(says(live.get("/metrics"), 200));
  EXPECT_TRUE(says(live.post("/tokenize", R"({"prompt":"a"})"), 200));
  hang.release();
  while (!says(live.get("/health"), 200)) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(live.text(4).empty());
  EXPECT_TRUE(live.end().ok());
}

// A step that holds the engine's lock: who asks is answered, who leaves is let go by its end.
TEST(ServiceLive, NobodyWaitsForAStepThatHoldsTheEngine) {
  Hang hang;
  Live live;
  live.engine().set_logits_observer(
      [&](RequestId, int32_t, int32_t, std::span<const float>) { hang(); });
  {
    const Client client(live.port());
    client.send(request("/v1/completions", completion(400, true)));
    hang.await();
  }
  for (const char* path : {"/metrics", "/status", "/health", "/version"})
    EXPECT_TRUE(says(live.get(path), 200)) << path;
  EXPECT_TRUE(says(live.post("/tokenize", R"({"prompt":"a"})"), 200));
  // The server knows that the client is gone once only the one who asks is there.
  while (live.get("/metrics").find("\npelton_connections_open 1\n") == std::string::npos)
    std::this_thread::sleep_for(1ms);
  hang.release();
  const engine::EngineMetrics m = live.settle();
  EXPECT_EQ(m.requests, 1);
  EXPECT_EQ(m.cancelled, 1);
  EXPECT_LE(m.generated_tokens, 1);  // no step after the one that ran
  EXPECT_FALSE(live.text(4).empty());
  EXPECT_TRUE(live.end().ok());
}

// With the only worker held, streams run and end and whoever asks for no body is answered: bodies
// are read, and texts tokenized, on workers and nowhere else.
TEST(ServiceLive, BodiesAreReadOnWorkersAlone) {
  Hang hang;
  ServiceOptions options;
  options.workers = 1;
  options.request_log = [&](const std::string& line) {  // a worker's task
    if (line.find("\"stream\":false") != std::string::npos) hang();
  };
  Live live(std::move(options));
  const Client stream(live.port());
  stream.send(request("/v1/completions", completion(300, true)));
  std::string answer = stream.read_some(4096);
  EXPECT_TRUE(says(answer, 200));
  EXPECT_FALSE(live.text(1).empty());
  hang.await();
  const Client asks(live.port());
  asks.send(request("/tokenize", R"({"prompt":"a"})"));
  answer += stream.read_all();
  EXPECT_NE(answer.find("data: [DONE]\n\n"), std::string::npos);
  for (const char* path : {"/health", "/metrics", "/status"})
    EXPECT_TRUE(says(live.get(path), 200)) << path;
  char byte = 0;
  EXPECT_EQ(recv(asks.descriptor(), &byte, 1, MSG_DONTWAIT), -1);
  hang.release();
  EXPECT_TRUE(says(asks.read_all(), 200));
  EXPECT_TRUE(live.end().ok());
}

TEST(ServiceLive, ClientsOfAllKindsAtOnce) {
  Live live;
  const std::string expected = live.text(12);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 6; ++seed) {
    threads.emplace_back([&live, &wrong, &expected, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 12; ++round) {
        const bool stream = random() % 2 == 0;
        switch (random() % 6) {
          case 0:
            if (live.text(12) != expected) ++wrong;
            break;
          case 1: {  // leaves while it is served
            const Client client(live.port());
            client.send(request("/v1/completions", completion(200, stream, 2)));
            if (stream) client.read_some(100);
            if (random() % 2 == 0) client.reset();
            break;
          }
          case 2: {  // does not read
            const Client client(live.port(), 2048);
            client.send(request("/v1/completions", completion(100, true, 4)));
            client.read_some(1);
            break;
          }
          case 3:
            if (!says(live.get("/metrics"), 200) || !says(live.get("/health"), 200)) ++wrong;
            break;
          case 4:
            if (!says(live.post("/v1/completions", R"({"prompt":"a","n":1000000})"), 400)) ++wrong;
            break;
          default: {
            const std::string answer = live.post("/v1/completions", completion(8, true));
            if (answer.find("data: [DONE]\n\n") == std::string::npos) ++wrong;
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(live.text(12), expected);
  const engine::EngineMetrics m = live.settle();
  EXPECT_EQ(m.requests, m.finished + m.cancelled + m.failed);
  EXPECT_EQ(m.failed, 0);
  EXPECT_EQ(m.scheduler.free_blocks, m.scheduler.total_blocks);
  EXPECT_TRUE(live.end().ok());
}

TEST(ServiceLive, DrainsWithStreamsInFlight) {
  Live live;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Client>(live.port()));
    clients.back()->send(request("/v1/completions", completion(60, true)));
  }
  while (live.engine().metrics().requests < 4) std::this_thread::sleep_for(1ms);
  std::vector<std::thread> readers;
  std::atomic<int> whole{0};
  for (const auto& client : clients) {
    readers.emplace_back([&whole, &client] {
      const std::string answer = client->read_all();
      if (says(answer, 503) || answer.find("data: [DONE]\n\n") != std::string::npos) ++whole;
    });
  }
  EXPECT_TRUE(live.end().ok());
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(whole, 6);
}

TEST(ServiceLive, TheSecondSignalEndsItAtOnce) {
  Live live;
  Client client(live.port());
  client.send(request("/v1/completions", completion(400, true, 4)));
  while (live.engine().metrics().requests < 1) std::this_thread::sleep_for(1ms);
  std::raise(SIGTERM);
  // The first one is known once nobody new gets in.
  while (Client(live.port()).connected()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(live.end().code(), StatusCode::kCancelled);
}

TEST(ServiceLive, ABodyMayHoldAWholeContextUnlessALimitWasSet) {
  HttpLimits limits;
  EXPECT_EQ(body_limit(limits, 512), kBodyBytes);
  EXPECT_EQ(body_limit(limits, 1 << 20), size_t{32} << 20);
  limits.body_bytes = kBodyBytes;
  EXPECT_EQ(body_limit(limits, 1 << 20), kBodyBytes);
  limits.body_bytes = 40;
  EXPECT_EQ(body_limit(limits, 1 << 20), 40u);
}

TEST(ServiceLive, LimitsAreSharp) {
  ServiceOptions options;
  options.http.limits.header_timeout = 50ms;
  options.http.limits.body_timeout = 50ms;
  options.http.limits.idle_timeout = 50ms;
  options.http.limits.body_bytes = 40;
  options.http.limits.connections = 3;
  Live live(std::move(options));
  const auto answer_to = [&](std::string_view bytes) {
    const Client client(live.port());
    client.send(bytes);
    return client.read_all();
  };
  EXPECT_EQ(answer_to(""), "");
  EXPECT_TRUE(says(answer_to("POST /tokenize HTTP/1.1\r\nHost: local"), 408));
  EXPECT_TRUE(says(
      answer_to("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"), 408));
  const std::string just = R"({"prompt":"a","add_special_tokens":true})";
  ASSERT_EQ(just.size(), 40u);
  EXPECT_TRUE(says(live.post("/tokenize", just), 200));
  EXPECT_TRUE(says(live.post("/tokenize", just + " "), 413));
  const auto chunked = [&](const std::string& body) {
    return answer_to(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n1\r\n" +
        body.substr(0, 1) + fmt::format("\r\n{:x}\r\n", body.size() - 1) + body.substr(1) +
        "\r\n0\r\n\r\n");
  };
  EXPECT_TRUE(says(chunked(just), 200));
  EXPECT_TRUE(says(chunked(just + " "), 413));
  EXPECT_TRUE(live.end().ok());
}

TEST(ServiceLive, ConnectionsBeyondTheLimitAreClosedAndTheOthersStay) {
  ServiceOptions options;
  options.http.limits.connections = 3;
  Live live(std::move(options));
  const Client first(live.port());
  const Client second(live.port());
  {
    const Client third(live.port());
    EXPECT_EQ(live.get("/health"), "");
    first.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_TRUE(says(first.read_some(4096), 200));
  }
  while (!says(live.get("/health"), 200)) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(live.end().ok());
}

// Nobody can tell that a client has left behind bytes that are not read.
TEST(ServiceLive, WhoSendsOnAndOnBehindARequestIsDropped) {
  Live live;
  const Client client(live.port());
  client.send(request("/v1/completions", completion(400, false, 4)));
  client.send(std::string(1u << 20, 'x'));
  EXPECT_EQ(client.read_all(), "");
  // Whether the engine had taken it by then depends on the threads; it never ran to its end.
  const auto metrics = live.settle();
  EXPECT_EQ(metrics.cancelled, metrics.requests);
  EXPECT_EQ(metrics.finished, 0);
  EXPECT_TRUE(live.end().ok());
}

}  // namespace
}  // namespace pelton::server
