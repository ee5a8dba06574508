// What must hold of every source that a reader accepted.
#pragma once

#include <span>
#include <string>

#include "weights/weight_source.h"

namespace pelton::weights::testing {

// Empty when all holds: each tensor's size follows from shape and format, its range lies inside
// `file` (or, for a copy that the source owns, can be read) and meets no other, and find() finds
// it.
std::string broken_promise(const WeightSource& source, std::span<const std::byte> file);

}  // namespace pelton::weights::testing
