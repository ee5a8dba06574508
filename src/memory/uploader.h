// Large data to the device, or back, through two pinned buffers: one is filled while the other is
// copied.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "memory/device_region.h"

namespace pelton::memory {

class Uploader {
 public:
  static constexpr size_t kBuffers = 2;
  static constexpr size_t kBufferBytes = size_t{16} << 20;
  static constexpr size_t kPinnedBytes = kBuffers * kBufferBytes;

  // `device` and `stream` must outlive the uploader.
  static Result<std::unique_ptr<Uploader>> create(device::Device& device, device::Stream& stream);

  // fill(begin, out) writes the bytes of `target` from `begin` on; it is called for pieces that are
  // whole multiples of `granule` (at most kBufferBytes), in order. Returns when all is filled; the
  // last copies may still run: finish().
  Status upload(std::byte* target, size_t bytes, size_t granule,
                FunctionRef<void(size_t begin, std::span<std::byte> out)> fill);
  Status upload(std::byte* target, std::span<const std::byte> source);
  // The way back: take() is called for pieces of kBufferBytes, the last one shorter, in order.
  Status download(std::span<const std::byte> source,
                  FunctionRef<Status(std::span<const std::byte> piece)> take);
  Status finish() { return stream_.finish(); }

 private:
  struct Buffer {
    DeviceRegion memory;
    std::unique_ptr<device::Event> copied;
  };
  explicit Uploader(device::Stream& stream) : stream_(stream) {}

  device::Stream& stream_;
  std::array<Buffer, kBuffers> buffers_;
  size_t next_ = 0;
};

}  // namespace pelton::memory
