#include "memory/mirror.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace pelton::memory {

Result<Mirror> Mirror::create(device::Device& device, size_t bytes) {
  Mirror mirror;
  auto host = Region::allocate(bytes);
  if (!host.ok()) return host.status();
  for (DeviceRegion& stage : mirror.stages_) {
    auto pinned = DeviceRegion::allocate(device, bytes, DeviceRegion::Kind::kPinnedHost);
    if (!pinned.ok()) return pinned.status();
    stage = std::move(pinned).value();
  }
  auto twin = DeviceRegion::allocate(device, bytes);
  if (!twin.ok()) return twin.status();
  mirror.host_ = std::move(host).value();
  mirror.device_ = std::move(twin).value();
  return mirror;
}

Status Mirror::upload(device::Stream& stream, size_t used) {
  check(used <= host_.size(), "more was written than the mirror holds");
  const DeviceRegion& stage = stages_[next_stage_];
  next_stage_ = (next_stage_ + 1) % kStages;
  if (used > 0) std::memcpy(stage.bytes().data(), host_.bytes().data(), used);
  return stream.copy_to_device(device_.bytes().data(), stage.bytes().data(), used);
}

ptrdiff_t Mirror::shift() const {
  return static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(device_.bytes().data()) -
                                reinterpret_cast<uintptr_t>(host_.bytes().data()));
}

const void* Mirror::twin_address(const void* host) const {
  if (host == nullptr) return nullptr;
  const auto* at = static_cast<const std::byte*>(host);
  const std::byte* begin = host_.bytes().data();
  check(at >= begin && at <= begin + host_.size(), "these integers have no copy on the device");
  return device_.bytes().data() + (at - begin);
}

}  // namespace pelton::memory
