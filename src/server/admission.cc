#include "server/admission.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <tuple>

namespace pelton::server {

bool Admission::fits(const Entry& entry) const {
  return running_sequences_ == 0 || running_sequences_ + entry.sequences <= limits_.max_running;
}

void Admission::start(const Entry& entry) {
  running_[entry.ticket] = entry;  // memory first: without it nothing has changed
  running_sequences_ += entry.sequences;
  Tenant& tenant = tenants_[entry.tenant];
  tenant.served += static_cast<double>(entry.prompt_tokens) / tenant.weight;
}

Admission::Verdict Admission::offer(const Entry& entry, AdmissionTime now) {
  const bool at_once = queue_.empty() && fits(entry);
  if (!at_once && waiting() >= limits_.max_queue) return Verdict::kFull;
  Tenant& tenant = tenants_[entry.tenant];
  if (tenant.open == 0) {
    // Credit is not saved up while away: a newcomer starts level with the least served present.
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [id, other] : tenants_) {
      if (other.open > 0) least = std::min(least, other.served);
    }
    if (std::isfinite(least)) tenant.served = std::max(tenant.served, least);
  }
  if (at_once) {
    start(entry);
  } else {
    queue_.push_back({entry, arrivals_++, now});
  }
  ++tenant.open;
  return at_once ? Verdict::kRun : Verdict::kQueued;
}

void Admission::finish(Ticket ticket, int64_t generated) {
  const auto found = running_.find(ticket);
  if (found == running_.end()) return;
  const Entry entry = found->second;
  running_.erase(found);
  running_sequences_ -= entry.sequences;
  Tenant& tenant = tenants_[entry.tenant];
  tenant.served += 2.0 * static_cast<double>(generated) / tenant.weight;
  close(entry.tenant);
}

std::vector<Admission::Waiting>::iterator Admission::best() {
  const auto key = [&](const Waiting& w) {
    return std::tuple(w.entry.priority, tenants_[w.entry.tenant].served, w.arrival);
  };
  return std::min_element(queue_.begin(), queue_.end(),
                          [&](const Waiting& a, const Waiting& b) { return key(a) < key(b); });
}

std::vector<Admission::Ticket> Admission::admit() {
  std::vector<Ticket> admitted;
  admitted.reserve(queue_.size());  // who has begun must be told
  while (!queue_.empty()) {
    const auto next = best();
    // Nobody overtakes: what is wide waits until there is room for it.
    if (!fits(next->entry)) break;
    try {
      start(next->entry);
    } catch (const std::bad_alloc&) {
      break;
    }
    admitted.push_back(next->entry.ticket);
    queue_.erase(next);
  }
  return admitted;
}

bool Admission::abandon(Ticket ticket) {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const Waiting& w) { return w.entry.ticket == ticket; });
  if (found == queue_.end()) return false;
  close(found->entry.tenant);
  queue_.erase(found);
  return true;
}

std::vector<Admission::Ticket> Admission::expire(AdmissionTime now) {
  std::vector<Ticket> expired;
  expired.reserve(queue_.size());
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (now - it->since < limits_.max_wait) {
      ++it;
      continue;
    }
    expired.push_back(it->entry.ticket);
    close(it->entry.tenant);
    it = queue_.erase(it);
  }
  return expired;
}

std::vector<Admission::Ticket> Admission::clear() {
  std::vector<Ticket> all;
  all.reserve(queue_.size());
  for (const Waiting& w : queue_) {
    all.push_back(w.entry.ticket);
    close(w.entry.tenant);
  }
  queue_.clear();
  return all;
}

void Admission::note_duration(double seconds) { mean_seconds_ += 0.1 * (seconds - mean_seconds_); }

int Admission::retry_after() const {
  const double rounds = static_cast<double>(waiting() + 1) / std::max(1, limits_.max_running);
  return static_cast<int>(std::clamp(std::ceil(rounds * mean_seconds_), 1.0, 60.0));
}

}  // namespace pelton::server
