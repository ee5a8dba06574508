#include "device/caps.h"

namespace pelton::device {

Caps h200_caps() {
  return {.name = "NVIDIA H200",
          .compute_major = 9,
          .compute_minor = 0,
          .num_sms = 132,
          .memory_bytes = size_t{140} << 30,
          .l2_bytes = size_t{50} << 20,
          .shared_memory_per_block = size_t{227} << 10,
          .bandwidth = 4.2e12};
}

}  // namespace pelton::device
