// How the system's scheduler treats the calling thread.
#pragma once

#include <cstdint>

namespace pelton {

// For a thread that wakes often and runs briefly: it then runs as soon as it wakes, even where
// every core computes. Its share of the time, its priority and its rights stay as they are. Nothing
// happens where the system knows no such wish (Linux before 6.12) or the thread's policy is not the
// ordinary one.
void prefer_short_turns();
// Nanoseconds of the calling thread's turn; 0 where the system does not tell.
uint64_t turn_nanoseconds();

}  // namespace pelton
