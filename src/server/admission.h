// Who may enter the engine, and when. A bounded queue before the engine's own: lower priority
// numbers first, within one the tenant that has had the fewest tokens (a virtual token counter a
// tenant, weighted), then arrival. Decides only; knows neither clocks nor threads: times are given
// to it, and one caller at a time uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace pelton::server {

using AdmissionTime = std::chrono::steady_clock::time_point;

struct AdmissionLimits {
  int max_running = 16;  // sequences inside the engine
  int max_queue = 256;   // requests that may wait
  std::chrono::milliseconds max_wait{60'000};
};

class Admission {
 public:
  using Ticket = uint64_t;

  struct Entry {
    Ticket ticket = 0;  // the caller's, unique
    int tenant = 0;
    int32_t priority = 0;
    int sequences = 1;
    int64_t prompt_tokens = 0;
  };

  enum class Verdict { kRun, kQueued, kFull };

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // A tenant's share of tokens relative to others'; 1 unless set.
  void set_weight(int tenant, double weight) { tenants_[tenant].weight = weight; }

  // kRun: it counts as running at once.
  Verdict offer(const Entry& entry, AdmissionTime now);
  // A running request is over, after `generated` tokens.
  void finish(Ticket ticket, int64_t generated);
  // Takes a waiting request out; false when it does not wait.
  bool abandon(Ticket ticket);
  // Those that may run now; they count as running. Who there is no memory for waits on.
  std::vector<Ticket> admit();
  // Those that have waited too long; they are out.
  std::vector<Ticket> expire(AdmissionTime now);
  // All that wait; they are out.
  std::vector<Ticket> clear();

  int waiting() const { return static_cast<int>(queue_.size()); }
  int running_sequences() const { return running_sequences_; }
  // Seconds after which a refused client may come again, from how fast requests ended of late.
  int retry_after() const;
  void note_duration(double seconds);

 private:
  struct Tenant {
    double weight = 1;
    double served = 0;  // tokens so far: a prompt's count once, generated ones twice
    int open = 0;       // requests that wait or run
  };
  struct Waiting {
    Entry entry;
    uint64_t arrival = 0;
    AdmissionTime since;
  };

  bool fits(const Entry& entry) const;
  void start(const Entry& entry);
  std::vector<Waiting>::iterator best();
  void close(int tenant) { --tenants_[tenant].open; }

  AdmissionLimits limits_;
  std::map<int, Tenant> tenants_;
  std::vector<Waiting> queue_;
  std::map<Ticket, Entry> running_;
  int running_sequences_ = 0;
  uint64_t arrivals_ = 0;
  double mean_seconds_ = 1;
};

}  // namespace pelton::server
