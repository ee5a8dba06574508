// Allocation failure anywhere in a server while it answers: that request is refused or cut off, the
// next one is answered as ever, and no place in the queue is lost.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "server/live_client.h"
#include "server/service.h"
#include "tests/support/allocation_hook.h"
#include "tests/support/source_root.h"

namespace pelton::server {
namespace {

using testing::AllocationCounter;
using testing::AllocationFailure;

// Few places, so that the first ones that leak are missed.
constexpr int kSequences = 2;

class Live {
 public:
  Live() {
    engine::EngineOptions options;
    options.threads = 1;
    options.max_model_len = 128;
    options.max_num_seqs = kSequences;
    auto files = engine::ModelFiles::open(pelton::source_root() / "tests/data/runnel-2m");
    engine_ = engine::Engine::load(std::move(files).value(), options).value();
    ServiceOptions service;
    service.http.port = 0;
    service.version = "test";
    service.log = [](const std::string&) {};
    service_ = Service::create(*engine_, std::move(service)).value();
    thread_ = std::thread([this] { outcome_ = service_->run(); });
  }
  ~Live() {
    std::raise(SIGTERM);
    thread_.join();
    EXPECT_TRUE(outcome_.ok()) << outcome_.to_string();
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  uint16_t port() const { return service_->port(); }
  bool at_rest() const {
    const engine::EngineMetrics m = engine_->metrics();
    return m.requests == m.finished + m.cancelled + m.failed &&
           m.scheduler.free_blocks == m.scheduler.total_blocks;
  }
  bool healthy() const { return engine_->healthy(); }

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  Status outcome_;
};

struct Case {
  const char* name;
  std::string bytes;
};

std::vector<Case> cases() {
  const auto text = [](bool stream, int n) {
    return request(
        "/v1/completions",
        fmt::format(
            R"({{"prompt":"The river is","max_tokens":4,"temperature":0,"ignore_eos":true,"logprobs":1,"n":{},"stream":{}}})",
            n, stream));
  };
  const auto chat = [](bool stream) {
    return request(
        "/v1/chat/completions",
        fmt::format(
            R"({{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":3,"temperature":0,"stream":{}}})",
            stream));
  };
  return {{"whole", text(false, 2)},
          {"stream", text(true, 2)},
          {"chat", chat(false)},
          {"chat stream", chat(true)},
          {"embeddings", request("/v1/embeddings", R"({"input":["a","b"]})")},
          {"tokenize", request("/tokenize", R"({"prompt":"The river is"})")},
          {"metrics", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"}};
}

// Until the server closes, into memory that is there already.
size_t receive(const Client& client, std::span<char> out) {
  size_t got = 0;
  while (got < out.size()) {
    const ssize_t count = recv(client.descriptor(), out.data() + got, out.size() - got, 0);
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  return got;
}

std::string whole(const Live& live, const std::string& bytes) {
  const Client client(live.port());
  client.send(bytes);
  std::string answer = client.read_all();
  return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n")));
}

// What does not change from one answer to the next.
std::string lasting(const std::string& answer) {
  const size_t at = answer.find("\"choices\"");
  return at == std::string::npos ? "" : answer.substr(at, answer.find("\"usage\"") - at);
}

void fail_one(const Live& live, const Case& c, uint64_t k, AllocationFailure::Mode mode) {
  static std::array<char, 1u << 18> buffer;
  size_t got = 0;
  {
    const Client client(live.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it is accepted by now, mostly
    client.send(c.bytes.substr(0, 10));
    {
      const AllocationFailure failure(k, mode);
      client.send(std::string_view(c.bytes).substr(10));
      if (mode == AllocationFailure::Mode::kFromThenOn)
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      else
        got = receive(client, buffer);
    }
    if (got == 0) got = receive(client, buffer);
  }
  const std::string_view answer(buffer.data(), got);
  const bool right =
      answer.empty() || answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 ");
  EXPECT_TRUE(right) << c.name << ", allocation " << k << ": " << answer.substr(0, 200);
}

// How many allocations one answer takes: sampled from there on.
uint64_t count_allocations(const Live& live, const Case& c) {
  const AllocationCounter counter;
  whole(live, c.bytes);
  return counter.calls();
}

TEST(ServerFaults, WantOfMemoryEndsOneRequestAndNoMore) {
  const char* everything = std::getenv("PELTON_LONG_TESTS");
  const uint64_t samples = everything != nullptr ? 2000 : 25;
  const Live live;
  const Case control = cases().front();
  const std::string expected = lasting(whole(live, control.bytes));
  ASSERT_FALSE(expected.empty());
  for (const Case& c : cases()) {
    whole(live, c.bytes);
    const uint64_t allocations = count_allocations(live, c);
    ASSERT_GT(allocations, 10u) << c.name;
    const uint64_t stride = std::max<uint64_t>(1, allocations / samples);
    for (uint64_t k = 1; k <= allocations; k += stride) {
      for (const auto mode :
           {AllocationFailure::Mode::kOnce, AllocationFailure::Mode::kFromThenOn}) {
        fail_one(live, c, k, mode);
        ASSERT_TRUE(live.healthy()) << c.name << ", allocation " << k;
        // More at once than there are places: each must be free again.
        ASSERT_EQ(lasting(whole(live, control.bytes)), expected) << c.name << ", allocation " << k;
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  for (int i = 0; i < 2000 && !live.at_rest(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(live.at_rest());
}

}  // namespace
}  // namespace pelton::server
