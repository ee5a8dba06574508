// The thread that steps the engine. Requests come from any thread; between requests it sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace pelton::server {

class EngineLoop {
 public:
  // `on_damage` is called once, on the engine's thread, when the engine can no longer step:
  // requests that are open then get no more events. It is told why, for the log.
  using DamageSink = std::function<void(std::string_view cause)>;
  // `after_step` is called on the engine's thread when the events of a step have been told.
  EngineLoop(engine::Engine& engine, DamageSink on_damage, std::function<void()> after_step);
  ~EngineLoop();  // stops
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // As Engine's; `sink` runs on the engine's thread and must be quick.
  Result<RequestId> submit(Request request, engine::Engine::EventSink sink);
  // Takes effect between two steps; never waits for one.
  void cancel(RequestId id);
  void stop();

  // True while the engine is whole, no step has been running for longer than `limit`, and no
  // request has waited that long without a step that did something.
  bool making_progress(std::chrono::milliseconds limit) const;
  engine::Engine& engine() { return engine_; }
  // Seconds spent inside steps so far: with wall time, the engine's utilisation.
  double busy_seconds() const;

 private:
  void run();
  void step_until_idle();
  void tell_damage(std::string_view cause);
  bool take_cancels();
  bool has_open_requests() const;
  void notify();

  engine::Engine& engine_;
  DamageSink on_damage_;
  std::function<void()> after_step_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool work_ = false;
  std::vector<RequestId> cancels_;  // asked for and not yet handed on
  std::vector<RequestId> taken_;    // engine's thread only
  bool stop_ = false;
  std::atomic<bool> damaged_{false};
  std::atomic<int64_t> step_started_ns_{0};   // of the monotonic clock; 0 = none runs
  std::atomic<int64_t> stalled_since_ns_{0};  // requests are open and a step did nothing; 0 = no
  std::atomic<int64_t> busy_ns_{0};
  std::thread thread_;
};

}  // namespace pelton::server
