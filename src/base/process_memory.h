// Memory of this process as the system counts it.
#pragma once

#include <cstddef>

namespace pelton {

// Resident pages that no file backs: heap, arenas, stacks. 0 where the system does not tell.
size_t anonymous_resident_bytes();

}  // namespace pelton
