// Memory of a device, or host memory that its copies read directly: taken once at start, given back
// at the end.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "device/device.h"

namespace pelton::memory {

class DeviceRegion {
 public:
  enum class Kind { kDevice, kPinnedHost };

  DeviceRegion() = default;
  // `device` must outlive the region. Contents are undefined; kResourceExhausted names the size.
  static Result<DeviceRegion> allocate(device::Device& device, size_t bytes,
                                       Kind kind = Kind::kDevice);
  ~DeviceRegion();
  DeviceRegion(DeviceRegion&& other) noexcept;
  DeviceRegion& operator=(DeviceRegion&& other) noexcept;

  // Of kDevice: addresses that only the device may follow.
  std::span<std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

 private:
  device::Device* device_ = nullptr;
  Kind kind_ = Kind::kDevice;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pelton::memory
