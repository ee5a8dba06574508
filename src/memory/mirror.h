// A step's integers in host memory and their twin on the device: written on the host, sent in one
// copy, found on the device at the same offset. Addresses never change, so a captured graph finds
// the next step's integers where the last one's were.
#pragma once

#include <span>

#include "memory/device_region.h"

namespace pelton::memory {

class Mirror {
 public:
  Mirror() = default;
  static Result<Mirror> create(device::Device& device, size_t bytes);

  std::span<std::byte> host() const { return host_.bytes(); }
  // Queues the copy of the first `used` bytes. The host's side must stay as it is until it is done.
  Status upload(device::Stream& stream, size_t used) const;

  // The device's copy of something within host(); a programmer error otherwise. Null stays null.
  template <typename T>
  const T* twin(const T* host) const {
    return static_cast<const T*>(twin_address(host));
  }
  // Bytes from a host address to its twin.
  ptrdiff_t shift() const;

 private:
  const void* twin_address(const void* host) const;

  DeviceRegion host_;
  DeviceRegion device_;
};

}  // namespace pelton::memory
