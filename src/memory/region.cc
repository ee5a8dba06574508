#include "memory/region.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

namespace pelton::memory {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Result<Region> Region::allocate(size_t bytes) {
  Region region;
  if (bytes == 0) return region;
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  void* data = size < bytes ? MAP_FAILED
                            : mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return resource_exhausted(fmt::format("cannot take {} bytes of memory", bytes));
  region.data_ = static_cast<std::byte*>(data);
  region.size_ = size;
  return region;
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, size_);
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Region::drop_pages(size_t begin, size_t end) const {
  begin = (begin + kPage - 1) / kPage * kPage;
  end = end / kPage * kPage;
  if (begin < end && end <= size_) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace pelton::memory
