// Weights as a device keeps them, all in one piece, so that the next start need not convert them
// again (docs/formats/packed_file.md). The file says what it was made of; anything else is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/result.h"
#include "weights/weight_source.h"

namespace pelton::weights {

// What a packed file must agree with to be used.
struct PackedKey {
  uint64_t source = 0;  // source_digest
  uint64_t layout = 0;  // how the weights are kept, and for what: the caller's own number
  uint64_t bytes = 0;   // of the payload
};

// A number of the source's tensors: names, formats, shapes, places, and the sizes and times of
// change of their files. No weight is read.
uint64_t source_digest(const WeightSource& source);

// The sum of its chunks' numbers, so that they can be worked out in any order, by many threads.
inline constexpr size_t kPackedChunk = size_t{1} << 20;
uint64_t packed_chunk_digest(uint64_t index, std::span<const std::byte> chunk);

class PackedFile {
 public:
  // kNotFound where there is no such file; kDataLoss, with the reason, where it is none of ours,
  // damaged, or made of something else than `key` says. The payload is not read.
  static Result<std::unique_ptr<PackedFile>> open(const std::filesystem::path& path,
                                                  const PackedKey& key);
  // A file's bytes in memory, for fuzzing and tests; they must outlive the result.
  static Result<std::unique_ptr<PackedFile>> parse(std::span<const std::byte> bytes,
                                                   const PackedKey& key);

  std::span<const std::byte> payload() const { return payload_; }
  // What the chunks' digests add up to.
  uint64_t digest() const { return digest_; }
  // The payload from `begin` on.
  void copy(size_t begin, std::span<std::byte> out) const;
  void read_ahead(size_t begin, size_t bytes) const;

 private:
  PackedFile() = default;
  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> payload_;
  uint64_t digest_ = 0;
};

// Writes such a file; it appears when all of it is there.
class PackedWriter {
 public:
  static Result<std::unique_ptr<PackedWriter>> create(const std::filesystem::path& path,
                                                      const PackedKey& key);
  // The payload in order, in pieces of whole chunks; the last one may be shorter.
  Status append(std::span<const std::byte> piece);
  // kInternal where the payload is not as long as the key said.
  Status commit();

 private:
  explicit PackedWriter(const PackedKey& key) : key_(key) {}
  PackedKey key_;
  std::unique_ptr<FileWriter> file_;
  uint64_t written_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace pelton::weights
