// Anonymous memory taken from the system once, at start, and given back at the end. Not prefaulted:
// pages count as resident when first written.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace pelton::memory {

class Region {
 public:
  Region() = default;
  // Page-aligned, zero-filled. kResourceExhausted names the size.
  static Result<Region> allocate(size_t bytes);
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  std::span<std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }
  // Returns the pages to the system; they read as zeros afterwards.
  void drop_pages(size_t begin, size_t end) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pelton::memory
