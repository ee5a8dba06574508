#include "server/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Verdict = Admission::Verdict;
using std::chrono::milliseconds;

const AdmissionTime kStart{};

Admission::Entry entry(Admission::Ticket ticket, int tenant = 0, int32_t priority = 0,
                       int sequences = 1) {
  return {.ticket = ticket,
          .tenant = tenant,
          .priority = priority,
          .sequences = sequences,
          .prompt_tokens = 10};
}

TEST(Admission, RunsThenQueuesThenRefuses) {
  Admission admission({.max_running = 2, .max_queue = 2, .max_wait = milliseconds(1000)});
  EXPECT_EQ(admission.offer(entry(1), kStart), Verdict::kRun);
  EXPECT_EQ(admission.offer(entry(2), kStart), Verdict::kRun);
  EXPECT_EQ(admission.offer(entry(3), kStart), Verdict::kQueued);
  EXPECT_EQ(admission.offer(entry(4), kStart), Verdict::kQueued);
  EXPECT_EQ(admission.offer(entry(5), kStart), Verdict::kFull);
  EXPECT_THAT(admission.admit(), IsEmpty());
  admission.finish(1, 5);
  EXPECT_THAT(admission.admit(), ElementsAre(3));
  EXPECT_EQ(admission.waiting(), 1);
  EXPECT_EQ(admission.running_sequences(), 2);
}

TEST(Admission, PriorityThenArrival) {
  Admission admission({.max_running = 1, .max_queue = 9, .max_wait = milliseconds(1000)});
  admission.offer(entry(1), kStart);
  admission.offer(entry(2, 0, 5), kStart);
  admission.offer(entry(3, 0, 0), kStart);
  admission.offer(entry(4, 0, 0), kStart);
  admission.offer(entry(5, 0, -1), kStart);
  std::vector<Admission::Ticket> order;
  for (Admission::Ticket running = 1; order.size() < 4;) {
    admission.finish(running, 0);
    const auto next = admission.admit();
    ASSERT_EQ(next.size(), 1u);
    order.push_back(running = next[0]);
  }
  EXPECT_THAT(order, ElementsAre(5, 3, 4, 2));
}

TEST(Admission, WideRequestsAreNotOvertaken) {
  Admission admission({.max_running = 2, .max_queue = 9, .max_wait = milliseconds(1000)});
  admission.offer(entry(1), kStart);
  EXPECT_EQ(admission.offer(entry(2, 0, 0, 2), kStart), Verdict::kQueued);
  EXPECT_EQ(admission.offer(entry(3), kStart), Verdict::kQueued);
  admission.finish(1, 0);
  EXPECT_THAT(admission.admit(), ElementsAre(2));
  admission.finish(2, 0);
  // Wider than all places together: alone.
  EXPECT_THAT(admission.admit(), ElementsAre(3));
  admission.finish(3, 0);
  EXPECT_EQ(admission.offer(entry(4, 0, 0, 5), kStart), Verdict::kRun);
}

TEST(Admission, TenantsShareByTokensAndWeight) {
  Admission admission({.max_running = 1, .max_queue = 999, .max_wait = milliseconds(1000)});
  admission.set_weight(2, 3.0);
  Admission::Ticket ticket = 1;
  admission.offer(entry(ticket++, 1), kStart);
  for (int i = 0; i < 60; ++i) {
    admission.offer(entry(ticket++, 1), kStart);
    admission.offer(entry(ticket++, 2), kStart);
  }
  // While both wait, tokens go by weight. Odd tickets above 1 are the second tenant's.
  int served[3] = {0, 1, 0};
  Admission::Ticket running = 1;
  for (int i = 0; i < 60; ++i) {
    admission.finish(running, 100);
    running = admission.admit().at(0);
    ++served[running % 2 == 0 ? 1 : 2];
  }
  EXPECT_NEAR(static_cast<double>(served[2]) / served[1], 3.0, 0.4);
}

TEST(Admission, CreditIsNotSavedUp) {
  Admission admission({.max_running = 1, .max_queue = 99, .max_wait = milliseconds(1000)});
  admission.offer(entry(1, 1), kStart);
  admission.finish(1, 1'000'000);
  admission.offer(entry(2, 1), kStart);
  admission.offer(entry(3, 1), kStart);
  // A newcomer does not go before all the others for as long as it was away.
  admission.offer(entry(4, 2), kStart);
  admission.offer(entry(5, 2), kStart);
  admission.offer(entry(6, 1), kStart);
  std::vector<Admission::Ticket> order;
  for (Admission::Ticket running = 2; order.size() < 4;) {
    admission.finish(running, 100);
    order.push_back(running = admission.admit().at(0));
  }
  EXPECT_LT(std::find(order.begin(), order.end(), 3), order.end() - 1);
  EXPECT_NE(order, (std::vector<Admission::Ticket>{4, 5, 3, 6}));
}

TEST(Admission, WaitingEndsByTimeOrByLeaving) {
  Admission admission({.max_running = 1, .max_queue = 9, .max_wait = milliseconds(1000)});
  admission.offer(entry(1), kStart);
  admission.offer(entry(2), kStart);
  admission.offer(entry(3), kStart + milliseconds(500));
  EXPECT_THAT(admission.expire(kStart + milliseconds(999)), IsEmpty());
  EXPECT_THAT(admission.expire(kStart + milliseconds(1000)), ElementsAre(2));
  EXPECT_TRUE(admission.abandon(3));
  EXPECT_FALSE(admission.abandon(3));
  EXPECT_FALSE(admission.abandon(1));
  EXPECT_EQ(admission.waiting(), 0);
}

TEST(Admission, RetryAfterGrowsWithTheQueue) {
  Admission admission({.max_running = 1, .max_queue = 99, .max_wait = milliseconds(1000)});
  for (int i = 0; i < 50; ++i) admission.note_duration(2.0);
  const int before = admission.retry_after();
  for (Admission::Ticket t = 1; t < 12; ++t) admission.offer(entry(t), kStart);
  EXPECT_GT(admission.retry_after(), before);
  EXPECT_LE(admission.retry_after(), 60);
  EXPECT_GE(before, 1);
}

}  // namespace
}  // namespace pelton::server
