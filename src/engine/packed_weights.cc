#include "engine/packed_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/splitmix.h"

namespace pelton::engine {

weights::PackedKey packed_key(const weights::WeightSource& source,
                              const nn::WeightPlacement& placement,
                              const nn::WeightStorage& totals) {
  // Raised when a layout changes while its name does not.
  constexpr uint64_t kLayouts = 1;
  uint64_t layout = mixed(totals.arrangement, kLayouts);
  layout = mixed(layout, static_cast<uint64_t>(placement.quantization));
  layout = mixed(layout, placement.exact ? 1 : 0);
  return {.source = weights::source_digest(source), .layout = layout, .bytes = totals.arena_bytes};
}

std::filesystem::path packed_path(const std::filesystem::path& path,
                                  const weights::PackedKey& key) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  return path / fmt::format("{:016x}.packed", mixed(mixed(key.source, key.layout), key.bytes));
}

Result<bool> read_packed(const std::filesystem::path& path, const weights::PackedKey& key,
                         nn::WeightStorage& storage, ThreadPool& pool) {
  const auto opened = weights::PackedFile::open(path, key);
  if (!opened.ok()) {
    if (opened.status().code() == StatusCode::kNotFound) return false;
    return opened.status();
  }
  const weights::PackedFile& file = **opened;
  std::atomic<uint64_t> digest = 0;
  const auto fill = [&](size_t begin, std::span<std::byte> piece) {
    constexpr size_t kChunk = weights::kPackedChunk;
    file.read_ahead(begin, 3 * memory::Uploader::kBufferBytes);
    pool.parallel_for(static_cast<int64_t>((piece.size() + kChunk - 1) / kChunk),
                      [&](int64_t i, int) {
                        const size_t at = static_cast<size_t>(i) * kChunk;
                        const auto chunk = piece.subspan(at, std::min(kChunk, piece.size() - at));
                        file.copy(begin + at, chunk);
                        digest += weights::packed_chunk_digest((begin + at) / kChunk, chunk);
                      });
  };
  const std::span<std::byte> arena = storage.device_arena.bytes();
  if (Status s = storage.uploader->upload(arena.data(), arena.size(), weights::kPackedChunk, fill);
      !s.ok()) {
    return s;
  }
  if (digest != file.digest())
    return data_loss(path.string() + ": its weights are damaged: remove it to have it made anew");
  return true;
}

Status write_packed(const std::filesystem::path& path, const weights::PackedKey& key,
                    nn::WeightStorage& storage) {
  auto writer = weights::PackedWriter::create(path, key);
  if (!writer.ok()) return writer.status();
  const Status sent = storage.uploader->download(
      storage.device_arena.bytes(),
      [&](std::span<const std::byte> p) { return (*writer)->append(p); });
  if (!sent.ok()) return sent;
  return (*writer)->commit();
}

}  // namespace pelton::engine
