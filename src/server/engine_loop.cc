#include "server/engine_loop.h"

#include <new>
#include <utility>

namespace pelton::server {
namespace {

// How long to wait before a step is tried again that found nothing to do though requests are open.
constexpr std::chrono::milliseconds kStallRetry{20};

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

EngineLoop::EngineLoop(engine::Engine& engine, DamageSink on_damage,
                       std::function<void()> after_step)
    : engine_(engine),
      on_damage_(std::move(on_damage)),
      after_step_(std::move(after_step)),
      thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() { stop(); }

Result<RequestId> EngineLoop::submit(Request request, engine::Engine::EventSink sink) {
  auto id = engine_.submit(std::move(request), std::move(sink));
  if (id.ok()) notify();
  return id;
}

void EngineLoop::cancel(RequestId id) {
  bool noted = true;
  {
    const std::lock_guard lock(mutex_);
    work_ =
        true;  // a cancelled request's last event is delivered by the next step, even an empty one
    try {
      cancels_.push_back(id);
    } catch (const std::bad_alloc&) {
      noted = false;
    }
  }
  if (!noted) engine_.cancel(id);  // waits for the engine's lock, but takes no memory
  wake_.notify_one();
}

// Hands on what was cancelled; false when the loop is to end.
bool EngineLoop::take_cancels() {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    taken_.swap(cancels_);
  }
  for (const RequestId id : taken_) engine_.cancel(id);
  taken_.clear();
  return true;
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
      const auto wanted = [&] { return work_ || stop_; };
      if (stalled_since_ns_ == 0) {
        wake_.wait(lock, wanted);
      } else {
        wake_.wait_for(lock, kStallRetry, wanted);
      }
      if (stop_) return;
      work_ = false;
    }
    try {
      step_until_idle();
    } catch (const InternalError& error) {
      damaged_ = true;
      return tell_damage(error.what());
    } catch (const std::bad_alloc&) {
      // Before or after a step: it is tried again in a while. In the middle of one the engine says
      // so.
      if (stalled_since_ns_ == 0) stalled_since_ns_ = now_ns();
    }
    step_started_ns_ = 0;
    if (engine_.healthy()) continue;
    damaged_ = true;
    return tell_damage("its requests say why");
  }
}

// Whoever owns the loop asks making_progress() too.
void EngineLoop::tell_damage(std::string_view cause) {
  try {
    on_damage_(cause);
  } catch (const std::bad_alloc&) {
  }
}

void EngineLoop::step_until_idle() {
  bool worked = true;
  while (worked) {
    if (!take_cancels() || !engine_.healthy()) return;
    const int64_t begin = now_ns();
    step_started_ns_ = begin;
    worked = engine_.step();
    after_step_();
    if (worked) busy_ns_ += now_ns() - begin;
    step_started_ns_ = 0;
    if (worked) stalled_since_ns_ = 0;
  }
  if (!has_open_requests()) {
    stalled_since_ns_ = 0;
  } else if (stalled_since_ns_ == 0) {
    stalled_since_ns_ = now_ns();
  }
}

bool EngineLoop::has_open_requests() const {
  const engine::EngineMetrics m = engine_.metrics();
  return m.requests > m.finished + m.cancelled + m.failed;
}

bool EngineLoop::making_progress(std::chrono::milliseconds limit) const {
  if (damaged_ || !engine_.healthy()) return false;
  const int64_t late = now_ns() - std::chrono::nanoseconds(limit).count();
  const int64_t started = step_started_ns_;
  const int64_t stalled = stalled_since_ns_;
  return (started == 0 || started > late) && (stalled == 0 || stalled > late);
}

double EngineLoop::busy_seconds() const { return static_cast<double>(busy_ns_) * 1e-9; }

}  // namespace pelton::server
