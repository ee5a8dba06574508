#include "server/engine_loop.h"

#include <new>
#include <utility>

namespace pelton::server {
namespace {

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, std::function<void()> on_damage)
    : engine_(engine), on_damage_(std::move(on_damage)), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() { stop(); }

Result<RequestId> EngineLoop::submit(Request request, engine::Engine::EventSink sink) {
  auto id = engine_.submit(std::move(request), std::move(sink));
  if (id.ok()) notify();
  return id;
}

void EngineLoop::cancel(RequestId id) {
  engine_.cancel(id);
  notify();  // a cancelled request's last event is delivered by the next step, even an empty one
}

void EngineLoop::notify() {
  {
    const std::lock_guard lock(mutex_);
    work_ = true;
  }
  wake_.notify_one();
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return work_ || stop_; });
      if (stop_) return;
      work_ = false;
    }
    try {
      step_until_idle();
    } catch (const InternalError&) {
      damaged_ = true;
    } catch (const std::bad_alloc&) {
      damaged_ = true;
    }
    step_started_ns_ = 0;
    if (!engine_.healthy()) damaged_ = true;
    if (damaged_) return on_damage_();
  }
}

void EngineLoop::step_until_idle() {
  bool worked = true;
  while (worked) {
    const int64_t begin = now_ns();
    step_started_ns_ = begin;
    worked = engine_.step();
    if (worked) busy_ns_ += now_ns() - begin;
    step_started_ns_ = 0;
    const std::lock_guard lock(mutex_);
    if (stop_ || !engine_.healthy()) return;
  }
}

bool EngineLoop::making_progress(std::chrono::milliseconds limit) const {
  if (damaged_ || !engine_.healthy()) return false;
  const int64_t started = step_started_ns_;
  return started == 0 || now_ns() - started < std::chrono::nanoseconds(limit).count();
}

double EngineLoop::busy_seconds() const { return static_cast<double>(busy_ns_) * 1e-9; }

}  // namespace pelton::server
