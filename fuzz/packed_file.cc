// The reader of packed weights over arbitrary bytes, against a key that the input chooses as well:
// nothing outside of the file is ever handed out.
#include "weights/packed_file.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::weights;
  if (size < 1 + 3 * sizeof(uint64_t)) return 0;
  PackedKey key;
  std::memcpy(&key.source, data + 1, sizeof(uint64_t));
  std::memcpy(&key.layout, data + 9, sizeof(uint64_t));
  std::memcpy(&key.bytes, data + 17, sizeof(uint64_t));
  if (data[0] % 2 == 1) key.bytes %= 256;
  // A copy of exactly this size: reading past the end is then seen.
  const size_t rest = size - 25;
  const std::unique_ptr<std::byte[]> bytes(new std::byte[rest]);
  std::memcpy(bytes.get(), data + 25, rest);
  const std::span<const std::byte> file(bytes.get(), rest);
  const auto packed = PackedFile::parse(file, key);
  if (!packed.ok()) {
    require(packed.status().message().find('\n') == std::string::npos);
    return 0;
  }
  const auto payload = (*packed)->payload();
  require(payload.size() == key.bytes && payload.data() >= file.data() &&
          payload.data() + payload.size() + sizeof(uint64_t) <= file.data() + file.size());
  uint64_t digest = packed_chunk_digest(0, payload);
  require(digest == packed_chunk_digest(0, payload));
  return 0;
}
