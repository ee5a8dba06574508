#include "server/generation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "server/json_writer.h"
#include "server/request_log.h"

namespace pelton::server {

Generation::Generation(GenerationHost& host, std::shared_ptr<HttpExchange> exchange,
                       GenerationPlan plan)
    : host_(host),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      n_(plan_.requests.front().sampling.n) {
  const size_t choices = plan_.requests.size() * static_cast<size_t>(n_);
  choices_.resize(choices);
  last_seen_.resize(choices);
  timelines_.resize(plan_.requests.size());
  ids_.reserve(plan_.requests.size());
  open_ = static_cast<int32_t>(choices);
  for (const Request& request : plan_.requests)
    usage_.prompt_tokens += static_cast<int64_t>(request.prompt_ids.size());
  times_.tokenized = since_arrival();
}

double Generation::since_arrival() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - plan_.arrival).count();
}

Admission::Entry Generation::entry() const {
  return {.ticket = plan_.ticket,
          .tenant = plan_.tenant,
          .priority = plan_.requests.front().priority,
          .sequences = static_cast<int>(choices_.size()),
          .prompt_tokens = usage_.prompt_tokens};
}

void Generation::launch() {
  {
    const std::lock_guard lock(mutex_);
    times_.admitted = since_arrival();
  }
  std::optional<ApiError> refusal;
  try {
    if (submit_all(&refusal)) return;
  } catch (const std::bad_alloc&) {
    return lose();
  }
  // What was not submitted will have no events.
  const std::lock_guard lock(mutex_);
  if (done_) return;
  stopped_ = true;
  if (refusal && !error_) error_ = std::move(refusal);
  open_ -= static_cast<int32_t>(plan_.requests.size() - ids_.size()) * n_;
  for (const RequestId id : ids_) host_.loop().cancel(id);
  if (open_ == 0) conclude(Wake::kNow);
}

// False when one was refused, or the generation was stopped before all were handed over.
bool Generation::submit_all(std::optional<ApiError>* refusal) {
  for (size_t i = 0; i < plan_.requests.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return false;
    }
    auto id = host_.loop().submit(
        std::move(plan_.requests[i]),
        [self = shared_from_this(), i](const TokenEvent& event) { self->on_event(i, event); });
    if (!id.ok()) {
      *refusal = from_status(id.status(), plan_.param);
      const std::lock_guard lock(mutex_);
      if ((*refusal)->status == 500) fault_ = id.status();
      return false;
    }
    const std::lock_guard lock(mutex_);
    ids_.push_back(*id);
    if (stopped_) host_.loop().cancel(*id);
  }
  const std::lock_guard lock(mutex_);
  return !stopped_;
}

void Generation::stop(std::optional<ApiError> error) {
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    stopped_ = true;
    if (error && !error_) error_ = std::move(error);
    for (const RequestId id : ids_) host_.loop().cancel(id);
  }
  // When it waits no more, launch() finds it stopped.
  if (!host_.abandon(*this)) return;
  const std::lock_guard lock(mutex_);
  open_ = 0;
  conclude(Wake::kNow);
}

void Generation::fail_hard(const ApiError& error) {
  host_.abandon(*this);
  const std::lock_guard lock(mutex_);
  if (done_) return;
  stopped_ = true;
  open_ = 0;
  try {
    if (!error_) error_ = error;
  } catch (const std::bad_alloc&) {
    lost_ = true;
  }
  conclude(Wake::kNow);
}

// There is no memory for it: it ends alone. Takes none.
void Generation::lose() {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  lost_ = stopped_ = true;
  open_ = 0;
  for (const RequestId id : ids_) host_.loop().cancel(id);
  conclude(Wake::kNow);
}

void Generation::look_after(std::chrono::steady_clock::time_point now) {
  {
    const std::lock_guard lock(mutex_);
    if (due_) answer(Wake::kNow);
  }
  if (plan_.timeout_s <= 0) return;
  if (std::chrono::duration<double>(now - plan_.arrival).count() < plan_.timeout_s) return;
  ApiError error = overloaded(503, "the request's timeout passed", 1);
  error.type = "timeout_error";
  error.code = "timeout";
  error.param = "timeout";
  stop(std::move(error));
}

// The border between one request and the engine: want of memory ends the request alone.
void Generation::on_event(size_t prompt, const TokenEvent& event) {
  try {
    if (take_event(prompt, event)) stop(std::nullopt);
  } catch (const std::bad_alloc&) {
    lose();
  }
}

// True when the rest of the request is to be cancelled.
bool Generation::take_event(size_t prompt, const TokenEvent& event) {
  const std::lock_guard lock(mutex_);
  if (done_ || open_ == 0) return false;
  const auto choice = static_cast<int32_t>(prompt) * n_ + event.index;
  const double now = since_arrival();
  if (!event.tokens.empty()) {
    double& last = last_seen_[static_cast<size_t>(choice)];
    if (last > 0) host_.metrics().inter_token(now - last);
    if (times_.first_token == 0) times_.first_token = now;
    last = now;
  }
  bool cancel_rest = false;
  if (event.finish != FinishReason::kNone) {
    --open_;
    if (event.timeline != nullptr) note_timeline(prompt, *event.timeline);
    usage_.completion_tokens += event.usage.completion_tokens;
    if (event.index == 0) usage_.cached_tokens += event.usage.cached_tokens;
    if (event.finish == FinishReason::kLength) how_ = RequestEnd::kLength;
    if (event.finish == FinishReason::kError) {
      cancel_rest = true;
      if (!error_) {
        error_ = from_status(event.error, plan_.param);
        if (error_->status == 500) fault_ = event.error;
      }
    }
  }
  if (plan_.stream) {
    inbox_.push_back({choice, event});
    inbox_.back().event.timeline = nullptr;  // it is the engine's, and of this moment
  } else {
    Choice& c = choices_[static_cast<size_t>(choice)];
    c.text += event.text;
    c.logprobs.insert(c.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    if (!event.prompt_logprobs.empty()) c.prompt_logprobs = event.prompt_logprobs;
    if (!event.embedding.empty()) c.embedding = event.embedding;
    if (event.finish != FinishReason::kNone) {
      c.finish = event.finish;
      c.stopped_by = event.stopped_by;
    }
  }
  if (open_ == 0) {
    conclude(Wake::kAfterStep);
  } else if (plan_.stream) {
    schedule(Wake::kAfterStep);
  }
  return cancel_rest && open_ > 0;
}

// Under the lock; takes no memory. All choices have ended.
void Generation::conclude(Wake wake) {
  if (done_) return;
  done_ = true;
  times_.ended = since_arrival();
  if (lost_) {
    how_ = RequestEnd::kRefused;
  } else if (error_) {
    how_ = error_->status != 500 ? RequestEnd::kRefused : RequestEnd::kFailed;
  } else if (stopped_) {
    how_ = RequestEnd::kCancelled;
  }
  answer(wake);
}

// Under the lock. Done: has the answer written, by the thread that is to do it.
void Generation::answer(Wake wake) {
  due_ = false;
  try {
    if (plan_.stream) {
      schedule(wake);
    } else {
      host_.workers().post([self = shared_from_this()] { self->answer_whole(); });
    }
  } catch (const std::bad_alloc&) {
    due_ = true;
  }
}

// Under the lock.
void Generation::schedule(Wake wake) {
  if (!scheduled_) host_.ready(shared_from_this());
  scheduled_ = true;
  if (wake == Wake::kNow) host_.flush_ready();
}

void Generation::respond(HttpResponse response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), plan_.headers.begin(), plan_.headers.end());
  exchange_->respond(std::move(response));
  host_.metrics().response(status);
}

void Generation::become_lost() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
}

void Generation::write_whole() {
  if (lost_) {
    respond(from_status(resource_exhausted(""), "").response(plan_.format->error_style()));
  } else if (error_) {
    respond(error_->response(plan_.format->error_style()));
  } else if (!stopped_) {
    respond({.body = plan_.format->whole(choices_, usage_, timings())});
  }
}

// Nothing changes any more, so that no lock is needed.
void Generation::answer_whole() {
  try {
    try {
      write_whole();
    } catch (const std::bad_alloc&) {
      become_lost();  // a shorter answer may have room
      write_whole();
    }
  } catch (const std::bad_alloc&) {
    exchange_->abandon();
  }
  host_.ended(*this);
}

void Generation::drain() {
  if (over_) return;
  try {
    try {
      over_ = write_stream();
    } catch (const std::bad_alloc&) {
      lose();
      become_lost();  // also where it was done before; a short last word may have room
      over_ = write_stream();
    }
  } catch (const std::bad_alloc&) {
    exchange_->abandon();
    over_ = true;
  }
  if (over_) host_.ended(*this);
}

// Writes what has come; true when that was all.
bool Generation::write_stream() {
  std::vector<Item> items;
  bool done = false;
  std::optional<ApiError> error;
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = false;
    items.swap(inbox_);
    done = done_;
    stopped = stopped_;
    if (done) error = lost_ ? from_status(resource_exhausted(""), "") : error_;
  }
  std::string out;
  if (!begun_ && error) {
    respond(error->response(plan_.format->error_style()));
    return true;
  }
  if (!begun_ && !items.empty() && !stopped) {
    HttpResponse head{.content_type = "text/event-stream; charset=utf-8", .headers = plan_.headers};
    head.headers.push_back({"Cache-Control", "no-cache"});
    exchange_->begin_stream(std::move(head));
    begun_ = true;
    host_.metrics().response(200);
    plan_.format->begin(&out);
  }
  for (Item& item : items) {
    // How a choice that was cut short ends is told once, by the error.
    if (item.event.finish == FinishReason::kCancelled || item.event.finish == FinishReason::kError)
      item.event.finish = FinishReason::kNone;
    if (begun_) plan_.format->delta(item.choice, item.event, &out);
  }
  if (done && begun_) {
    error ? plan_.format->failed(*error, &out)
          : plan_.format->end(usage_, plan_.timings ? timings() : std::string(), &out);
  }
  exchange_->write(out);
  if (done) exchange_->end_stream();
  return done;
}

// Under the lock. Of several prompts the first to run ends the wait.
void Generation::note_timeline(size_t prompt, const RequestTimeline& timeline) {
  timelines_[prompt] = timeline;
  if (timeline.scheduled == 0) return;
  const double scheduled = times_.admitted + timeline.scheduled;
  times_.scheduled = times_.scheduled == 0 ? scheduled : std::min(times_.scheduled, scheduled);
}

std::string Generation::timings() const {
  if (!plan_.timings) return {};
  JsonWriter json;
  write_timings(times_, timelines_, &json);
  return json.take();
}

std::string_view Generation::request_id() const {
  for (const HttpHeader& header : plan_.headers) {
    if (header.name == "X-Request-Id") return header.value;
  }
  return {};
}

std::string Generation::log_line(int64_t unix_milliseconds) const {
  LoggedRequest logged{.id = request_id(),
                       .client_id = {},
                       .route = exchange_->head().path,
                       .end = how_,
                       .stream = plan_.stream,
                       .tenant = plan_.tenant,
                       .usage = usage_,
                       .times = times_,
                       .timelines = timelines_};
  for (const HttpHeader& header : plan_.headers) {
    if (header.name == "X-Client-Request-Id") logged.client_id = header.value;
  }
  return request_line(logged, unix_milliseconds);
}

}  // namespace pelton::server
