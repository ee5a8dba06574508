#include "memory/device_region.h"

#include <utility>

namespace pelton::memory {

Result<DeviceRegion> DeviceRegion::allocate(device::Device& device, size_t bytes, Kind kind) {
  DeviceRegion region;
  if (bytes == 0) return region;
  auto memory = kind == Kind::kDevice ? device.allocate(bytes) : device.allocate_pinned(bytes);
  if (!memory.ok()) return memory.status();
  region.device_ = &device;
  region.kind_ = kind;
  region.data_ = static_cast<std::byte*>(*memory);
  region.size_ = bytes;
  return region;
}

DeviceRegion::~DeviceRegion() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::kDevice) {
    device_->release(data_);
  } else {
    device_->release_pinned(data_);
  }
}

DeviceRegion::DeviceRegion(DeviceRegion&& other) noexcept
    : device_(other.device_),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceRegion& DeviceRegion::operator=(DeviceRegion&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(kind_, other.kind_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace pelton::memory
