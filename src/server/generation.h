// One request for text on its way: waits for admission, runs as one engine request a prompt, turns
// events into an answer. It ends exactly once, however it ends; want of memory ends it as 503, or
// by closing the connection where there is none for that either.
//
// Threads: events come on the engine's thread; streams are formatted on the I/O thread, whole
// answers on a worker; stop() may come from anywhere.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/admission.h"
#include "server/answer_format.h"
#include "server/engine_loop.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/worker_pool.h"

namespace pelton::server {

class Generation;

// What a generation needs of the server around it.
class GenerationHost {
 public:
  virtual ~GenerationHost() = default;
  virtual EngineLoop& loop() = 0;
  virtual WorkerPool& workers() = 0;
  virtual Metrics& metrics() = 0;
  // Has its drain() called on the I/O thread, with those of others, once somebody flushes. Takes
  // memory.
  virtual void ready(std::shared_ptr<Generation> generation) = 0;
  // The engine's thread flushes after each step: one wake-up for all streams.
  virtual void flush_ready() = 0;
  // Takes it out of the queue; false when it is not, or no longer, there.
  virtual bool abandon(Generation& generation) = 0;
  // It is over; its answer is on its way.
  virtual void ended(Generation& generation) = 0;
};

struct GenerationPlan {
  Admission::Ticket ticket = 0;
  int tenant = 0;
  std::vector<Request> requests;  // one a prompt; all with the same `n`
  std::unique_ptr<AnswerFormat> format;
  std::vector<HttpHeader> headers;  // of the answer
  bool stream = false;
  bool timings = false;
  std::string param;     // the field that holds the prompt
  double timeout_s = 0;  // from `arrival`; 0 = none
  std::chrono::steady_clock::time_point arrival;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(GenerationHost& host, std::shared_ptr<HttpExchange> exchange, GenerationPlan plan);

  Admission::Entry entry() const;
  // Admitted: hands its requests to the engine.
  void launch();
  // Ends it early with this answer; without one nobody listens any more. Takes no memory.
  void stop(std::optional<ApiError> error);
  // As stop(), when the engine will give no more events.
  void fail_hard(const ApiError& error);
  // To be called now and then: stops it when its time is up, and gives the answer that there was no
  // memory to give.
  void look_after(std::chrono::steady_clock::time_point now);
  // On the I/O thread: writes what has come.
  void drain();

  Admission::Ticket ticket() const { return plan_.ticket; }
  int64_t generated_tokens() const { return usage_.completion_tokens; }  // once ended
  double seconds() const { return times_.ended; }                        // once ended
  RequestEnd how() const { return how_; }                                // once ended
  const Usage& usage() const { return usage_; }                          // once ended
  const RequestTimes& times() const { return times_; }                   // once ended
  std::chrono::steady_clock::time_point arrival() const { return plan_.arrival; }
  // What failed inside the server, for the log; once ended. Ok: nothing did.
  const Status& fault() const { return fault_; }
  // The server's own id of the request.
  std::string_view request_id() const;
  // A line of the request log; once ended.
  std::string log_line(int64_t unix_milliseconds) const;

 private:
  struct Item {
    int32_t choice = 0;
    TokenEvent event;
  };

  // When the I/O thread hears of it.
  enum class Wake { kNow, kAfterStep };

  bool submit_all(std::optional<ApiError>* refusal);
  void on_event(size_t prompt, const TokenEvent& event);
  bool take_event(size_t prompt, const TokenEvent& event);
  void lose();
  void become_lost();
  void note_timeline(size_t prompt, const RequestTimeline& timeline);
  void schedule(Wake wake);
  void conclude(Wake wake);
  void answer(Wake wake);
  bool write_stream();
  void answer_whole();
  void write_whole();
  void respond(HttpResponse response);
  std::string timings() const;
  double since_arrival() const;

  GenerationHost& host_;
  const std::shared_ptr<HttpExchange> exchange_;
  GenerationPlan plan_;
  const int32_t n_;

  std::mutex mutex_;
  std::vector<RequestId> ids_;
  std::vector<Item> inbox_;        // of a stream, not yet formatted
  std::vector<Choice> choices_;    // of a whole answer
  std::vector<double> last_seen_;  // a choice's last token, seconds since arrival
  int32_t open_ = 0;               // choices without their last event
  bool stopped_ = false;           // cancelled, by client, deadline or error
  bool lost_ = false;              // there was no memory for it
  bool due_ = false;               // done, but nobody was found to answer
  bool scheduled_ = false;         // a drain is on its way
  bool done_ = false;
  std::optional<ApiError> error_;
  Status fault_;
  Usage usage_;
  RequestTimes times_;
  std::vector<RequestTimeline> timelines_;  // one a prompt
  RequestEnd how_ = RequestEnd::kStop;
  bool begun_ = false;  // the stream has its head; I/O thread only
  bool over_ = false;   // and its end; I/O thread only
};

}  // namespace pelton::server
