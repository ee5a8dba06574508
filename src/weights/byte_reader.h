// A cursor over untrusted little-endian bytes. Every read is checked against what is left.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace pelton::weights {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // False, with nothing consumed, when the bytes end before the value does.
  template <typename T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] bool read(T* value) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // `length` bytes, borrowed.
  [[nodiscard]] bool read_bytes(uint64_t length, std::string_view* value) {
    if (length > remaining()) return false;
    *value = {reinterpret_cast<const char*>(bytes_.data()) + position_,
              static_cast<size_t>(length)};
    position_ += static_cast<size_t>(length);
    return true;
  }

  // A 64-bit length and that many bytes, borrowed.
  [[nodiscard]] bool read_string(std::string_view* value) {
    const size_t start = position_;
    uint64_t length = 0;
    if (read(&length) && read_bytes(length, value)) return true;
    position_ = start;
    return false;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace pelton::weights
