// What a device can do: kernels state what they support in these terms, so that choosing one is a
// pure function that runs on a machine without a GPU.
#pragma once

#include <cstddef>
#include <string>

namespace pelton::device {

struct Caps {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  size_t memory_bytes = 0;  // of the whole device
  size_t l2_bytes = 0;
  size_t shared_memory_per_block = 0;  // what a block may ask for at most
  double bandwidth = 0;                // bytes a second, read and written together; for costs

  bool is_hopper() const { return compute_major == 9 && compute_minor == 0; }
};

// The device to plan for where none is at hand.
Caps h200_caps();

}  // namespace pelton::device
