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
    next_ = (next_ + 1) % kBuffers;
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

Status Uploader::download(std::span<const std::byte> source,
                          FunctionRef<Status(std::span<const std::byte>)> take) {
  const auto piece_at = [&](size_t begin) {
    return source.subspan(begin, std::min(kBufferBytes, source.size() - begin));
  };
  const auto fetch = [&](size_t begin, Buffer& buffer) -> Status {
    if (begin >= source.size()) return {};
    const auto piece = piece_at(begin);
    if (Status s = stream_.copy_to_host(buffer.memory.bytes().data(), piece.data(), piece.size());
        !s.ok()) {
      return s;
    }
    return stream_.record(*buffer.copied);
  };
  if (Status s = finish(); !s.ok()) return s;
  if (Status s = fetch(0, buffers_[0]); !s.ok()) return s;
  for (size_t begin = 0; begin < source.size(); begin += kBufferBytes) {
    const size_t index = begin / kBufferBytes % kBuffers;
    if (Status s = buffers_[index].copied->finish(); !s.ok()) return s;
    if (Status s = fetch(begin + kBufferBytes, buffers_[(index + 1) % kBuffers]); !s.ok()) return s;
    if (Status s = take(buffers_[index].memory.bytes().first(piece_at(begin).size())); !s.ok())
      return s;
  }
  return {};
}

}  // namespace pelton::memory
