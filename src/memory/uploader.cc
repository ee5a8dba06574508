#include "memory/uploader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pelton::memory {

Result<std::unique_ptr<Uploader>> Uploader::create(device::Device& device, device::Stream& stream) {
  std::unique_ptr<Uploader> uploader(new Uploader(stream));
  for (Buffer& buffer : uploader->buffers_) {
    auto memory = DeviceRegion::allocate(device, kBufferBytes, DeviceRegion::Kind::kPinnedHost);
    if (!memory.ok()) return memory.status();
    buffer.memory = std::move(memory).value();
    auto event = device.create_event();
    if (!event.ok()) return event.status();
    buffer.copied = std::move(event).value();
  }
  return uploader;
}

Status Uploader::upload(std::byte* target, size_t bytes, size_t granule,
                        FunctionRef<void(size_t, std::span<std::byte>)> fill) {
  check(granule > 0 && granule <= kBufferBytes, "a granule must fit into an upload buffer");
  const size_t piece = kBufferBytes / granule * granule;
  for (size_t begin = 0; begin < bytes; begin += piece) {
    const size_t count = std::min(piece, bytes - begin);
    Buffer& buffer = buffers_[next_];
    next_ = 1 - next_;
    if (Status s = buffer.copied->finish(); !s.ok()) return s;
    fill(begin, buffer.memory.bytes().first(count));
    if (Status s = stream_.copy_to_device(target + begin, buffer.memory.bytes().data(), count);
        !s.ok()) {
      return s;
    }
    if (Status s = stream_.record(*buffer.copied); !s.ok()) return s;
  }
  return {};
}

Status Uploader::upload(std::byte* target, std::span<const std::byte> source) {
  return upload(target, source.size(), 1, [&](size_t begin, std::span<std::byte> out) {
    std::memcpy(out.data(), source.data() + begin, out.size());
  });
}

}  // namespace pelton::memory
