// Units that wait for admission, in their order. Entries are moved in and out without allocating:
// a unit brings its tree node along.
#pragma once

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/sequence.h"

namespace pelton::sched {

class WaitingQueue {
 public:
  // Gives a new unit the node that push() needs.
  void prepare(Unit* unit) { unit->node = units_.extract(units_.insert(unit).first); }
  void push(Unit* unit) {
    check(!unit->node.empty(), "a unit waits once");
    units_.insert(std::move(unit->node));
  }
  void remove(Unit* unit) {
    unit->node = units_.extract(unit);
    check(!unit->node.empty(), "only a waiting unit leaves the queue");
  }

  bool empty() const { return units_.empty(); }
  const OrderedUnits& units() const { return units_; }
  bool contains(Unit* unit) const { return units_.contains(unit); }

 private:
  OrderedUnits units_;
};

}  // namespace pelton::sched
