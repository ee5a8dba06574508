// A step's integers in host memory and their twin on the device: written on the host, sent in one
// copy, found on the device at the same offset. Addresses never change, so a captured graph finds
// the next step's integers where the last one's were. They are sent from two pinned buffers in
// turn: one step's may be written while the last one's copy is still queued.
#pragma once

#include <array>
#include <span>

#include "memory/device_region.h"
#include "memory/region.h"

namespace pelton::memory {

class Mirror {
 public:
  Mirror() = default;
  static Result<Mirror> create(device::Device& device, size_t bytes);
  // Pinned host memory of a mirror of so many bytes.
  static size_t pinned_bytes(size_t bytes) { return kStages * bytes; }

  std::span<std::byte> host() const { return host_.bytes(); }
  // Queues the copy of the first `used` bytes as they are now. The copy before the last one must be
  // done.
  Status upload(device::Stream& stream, size_t used);

  // The device's copy of something within host(); a programmer error otherwise. Null stays null.
  template <typename T>
  const T* twin(const T* host) const {
    return static_cast<const T*>(twin_address(host));
  }
  // Bytes from a host address to its twin.
  ptrdiff_t shift() const;

 private:
  const void* twin_address(const void* host) const;

  static constexpr size_t kStages = 2;

  Region host_;
  std::array<DeviceRegion, kStages> stages_;
  size_t next_stage_ = 0;
  DeviceRegion device_;
};

}  // namespace pelton::memory
