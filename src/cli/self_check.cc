#include "cli/self_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/common.h"

namespace pelton::cli {
namespace {

constexpr int kTimeoutSeconds = 120;

struct Answer {
  int status = 0;
  std::string body;
};

// A socket that closes itself.
class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{.tv_sec = kTimeoutSeconds, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Connection() {
    if (socket_ >= 0) ::close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool open() const { return open_; }
  bool send(std::string_view data) const {
    while (!data.empty()) {
      const ssize_t sent = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Everything until the other side closes; nothing after an error or the time limit.
  std::string receive() const {
    std::string out;
    char piece[16384];
    ssize_t got = 0;
    while ((got = ::recv(socket_, piece, sizeof piece, 0)) > 0)
      out.append(piece, static_cast<size_t>(got));
    return got == 0 ? out : std::string();
  }

 private:
  int socket_;
  bool open_ = false;
};

// HTTP/1.0: the answer is not chunked and ends with its connection.
Result<Answer> ask(const SelfTestTarget& target, std::string_view method, std::string_view path,
                   std::string_view body) {
  const Connection connection(target.port);
  if (!connection.open()) return internal_error("no connection to the server");
  std::string head = fmt::format("{} {} HTTP/1.0\r\nHost: localhost\r\n", method, path);
  if (!target.key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", target.key);
  if (!body.empty())
    head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  if (!connection.send(head + "\r\n") || !connection.send(body))
    return internal_error("the server does not read the request");
  const std::string text = connection.receive();
  const size_t end = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.", 0) != 0 || end == std::string::npos || text.size() < 12)
    return internal_error("no HTTP answer");
  const std::string status = text.substr(9, 3);
  if (status.find_first_not_of("0123456789") != std::string::npos)
    return internal_error("no HTTP status");
  return Answer{.status = std::stoi(status), .body = text.substr(end + 4)};
}

Status expect(const Answer& answer, int status) {
  if (answer.status == status) return {};
  return internal_error(fmt::format("status {} instead of {}: {}", answer.status, status,
                                    printable(answer.body.substr(0, 200))));
}

Status check_get(const SelfTestTarget& target, std::string_view path, std::string_view word) {
  const auto answer = ask(target, "GET", path, "");
  if (!answer.ok()) return answer.status();
  if (Status s = expect(*answer, 200); !s.ok()) return s;
  if (answer->body.find(word) == std::string::npos)
    return internal_error(fmt::format("the answer lacks {}", word));
  return {};
}

constexpr std::string_view kPrompt =
    R"({"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0)";
constexpr std::string_view kChat =
    R"({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0)";

Status check_generation(const SelfTestTarget& target, std::string_view path, std::string body) {
  const auto answer = ask(target, "POST", path, body + "}");
  if (!answer.ok()) return answer.status();
  if (Status s = expect(*answer, 200); !s.ok()) return s;
  const auto document = JsonDocument::parse(answer->body);
  if (!document.ok()) return document.status();
  int64_t tokens = 0;
  if (document->root().element()["usage"]["completion_tokens"].get(tokens) != simdjson::SUCCESS)
    return internal_error("the answer has no usage");
  if (tokens < 1 || tokens > 8) return internal_error(fmt::format("{} tokens of 8", tokens));
  return {};
}

Status check_stream(const SelfTestTarget& target) {
  const auto answer =
      ask(target, "POST", "/v1/completions", std::string(kPrompt) + R"(, "stream": true})");
  if (!answer.ok()) return answer.status();
  if (Status s = expect(*answer, 200); !s.ok()) return s;
  constexpr std::string_view kEnd = "data: [DONE]\n\n";
  const std::string& body = answer->body;
  if (body.rfind("data: {", 0) != 0 || body.size() < kEnd.size() ||
      body.compare(body.size() - kEnd.size(), kEnd.size(), kEnd) != 0)
    return internal_error("the stream does not end with [DONE]");
  if (body.find("\"finish_reason\":\"") == std::string::npos)
    return internal_error("the stream has no finish reason");
  return {};
}

Status check_refusal(const SelfTestTarget& target) {
  const auto answer = ask(target, "POST", "/v1/completions", "{\"prompt\": 1.5}");
  return answer.ok() ? expect(*answer, 400) : answer.status();
}

Status check_key(SelfTestTarget target) {
  target.key = "not-" + target.key;
  const auto answer = ask(target, "GET", "/v1/models", "");
  return answer.ok() ? expect(*answer, 401) : answer.status();
}

struct Check {
  std::string name;
  std::function<Status()> run;
};

std::vector<Check> checks_of(const SelfTestTarget& target) {
  std::vector<Check> checks = {
      {"health", [&] { return check_get(target, "/health", "ok"); }},
      {"ready", [&] { return check_get(target, "/ready", "ready"); }},
      {"models", [&] { return check_get(target, "/v1/models", "\"data\""); }},
      {"completion",
       [&] { return check_generation(target, "/v1/completions", std::string(kPrompt)); }},
      {"stream", [&] { return check_stream(target); }},
      {"refusal", [&] { return check_refusal(target); }},
      {"metrics", [&] { return check_get(target, "/metrics", "# TYPE "); }},
  };
  const auto chat = [&] {
    return check_generation(target, "/v1/chat/completions", std::string(kChat));
  };
  if (target.chat) checks.insert(checks.begin() + 4, {"chat", chat});
  if (!target.key.empty()) checks.push_back({"wrong key", [&] { return check_key(target); }});
  return checks;
}

}  // namespace

Status run_self_test(const SelfTestTarget& target) {
  std::string failed;
  for (const Check& check : checks_of(target)) {
    const auto start = std::chrono::steady_clock::now();
    const Status outcome = check.run();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const std::string line =
        outcome.ok() ? fmt::format("{:<12} passed  {:.0f} ms\n", check.name, took.count())
                     : fmt::format("{:<12} FAILED  {}\n", check.name, outcome.message());
    if (Status s = print(line); !s.ok()) return s;
    if (!outcome.ok()) failed += (failed.empty() ? "" : ", ") + check.name;
  }
  return failed.empty() ? Status() : internal_error("the self-test failed: " + failed);
}

}  // namespace pelton::cli
