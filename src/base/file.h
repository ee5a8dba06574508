// Files from outside: mapped for reading, or read whole under a limit; written so that a reader
// sees the old or the new content, never half of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton {

// A read-only mapping of a whole file. Pages of a file that is cut while mapped read as zeros
// instead of killing the process; truncated_while_mapped() then says so, and whoever used the bytes
// must report an error.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // When the file was changed last, nanoseconds of the system's clock.
  int64_t modified() const { return modified_; }
  // Gives the pages of this part of the mapping back to the system; reading them again loads them
  // again.
  void drop_pages(std::span<const std::byte> part) const;
  // What lies from `begin` on, by reading instead of through the mapping: large parts come faster
  // so.
  void copy(size_t begin, std::span<std::byte> out) const;
  // Asks the system to read this part of the file, as far as it is one, and does not wait for it.
  void read_ahead(size_t begin, size_t bytes) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ = 0;
  int fd_ = -1;
  std::string path_;
};

// True once any mapped file was found shorter than when it was mapped.
bool truncated_while_mapped();

// Whole content; refuses directories and files above `limit` bytes.
Result<std::string> read_file(const std::filesystem::path& path, uint64_t limit);

// A file that appears under its name when all of it is there: written to a temporary file beside
// `path`, which is a new name or a regular file, no link.
class FileWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> create(const std::filesystem::path& path);
  // Removes what was not committed.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  Status append(std::string_view content);
  // Syncs and renames; nothing is appended afterwards.
  Status commit();

 private:
  FileWriter() = default;
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

// Writes to a temporary file beside `path`, syncs, renames. `path` is a new name or a regular file,
// no link. On error the old file is intact and
// nothing is left over.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace pelton
