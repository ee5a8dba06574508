#include "weights/packed_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/splitmix.h"

namespace pelton::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers lie in files as in memory");

// At the beginning of the file; at its end lies the payload's digest.
struct Header {
  std::array<char, 8> magic = {'P', 'E', 'L', 'T', 'P', 'A', 'C', 'K'};
  uint64_t version = 1;
  uint64_t source = 0;
  uint64_t layout = 0;
  uint64_t bytes = 0;
  std::array<uint64_t, 2> reserved = {};
  uint64_t digest = 0;  // of the words above
};
static_assert(sizeof(Header) == 64);

uint64_t mixed_bytes(uint64_t digest, std::span<const std::byte> bytes) {
  digest = mixed(digest, bytes.size());
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    digest = mixed(digest, word);
  }
  return digest;
}

Header header_of(const PackedKey& key) {
  Header header{.source = key.source, .layout = key.layout, .bytes = key.bytes};
  header.digest =
      mixed_bytes(0, std::as_bytes(std::span(&header, 1)).first(offsetof(Header, digest)));
  return header;
}

}  // namespace

uint64_t source_digest(const WeightSource& source) {
  uint64_t digest = 0;
  const MappedFile* last = nullptr;
  for (const TensorInfo& tensor : source.tensors()) {
    digest = mixed(digest, tensor.name);
    digest = mixed(digest, static_cast<uint64_t>(tensor.format));
    for (const int64_t size : tensor.shape) digest = mixed(digest, static_cast<uint64_t>(size));
    const MappedFile* file = tensor.file;
    if (file == nullptr) {
      digest = mixed_bytes(digest, tensor.data);  // copied out of its file, or never in one
      continue;
    }
    digest = mixed(digest, static_cast<uint64_t>(tensor.data.data() - file->bytes().data()));
    if (file == last) continue;
    last = file;
    digest = mixed(digest, file->bytes().size());
    digest = mixed(digest, static_cast<uint64_t>(file->modified()));
  }
  return digest;
}

uint64_t packed_chunk_digest(uint64_t index, std::span<const std::byte> chunk) {
  // Four sums side by side: one alone would wait for each of its multiplications.
  std::array<uint64_t, 4> lanes;
  for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = mix_bits(4 * index + lane + 1);
  size_t i = 0;
  for (; i + sizeof(lanes) <= chunk.size(); i += sizeof(lanes)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), chunk.data() + i, sizeof(words));
    for (size_t lane = 0; lane < lanes.size(); ++lane)
      lanes[lane] = std::rotl(lanes[lane] ^ words[lane], 29) * 0x9E3779B97F4A7C15ull;
  }
  uint64_t digest = mixed_bytes(index, chunk.subspan(i));
  for (const uint64_t lane : lanes) digest = mixed(digest, lane);
  return digest;
}

Result<std::unique_ptr<PackedFile>> PackedFile::parse(std::span<const std::byte> bytes,
                                                      const PackedKey& key) {
  const Header want = header_of(key);
  Header header;
  if (bytes.size() < sizeof(Header)) return data_loss("too short for packed weights");
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.magic != want.magic) return data_loss("not a file of packed weights");
  if (header.version != want.version) {
    return data_loss(fmt::format("packed weights of version {}; this program writes {}",
                                 header.version, want.version));
  }
  if (header.source != want.source || header.layout != want.layout || header.bytes != want.bytes) {
    return data_loss(
        "packed of other weights, or for other options, than these: remove it to have it made "
        "anew");
  }
  if (header.digest != want.digest || header.reserved != want.reserved)
    return data_loss("its header is damaged");
  if (bytes.size() - sizeof(Header) < sizeof(uint64_t) ||
      bytes.size() - sizeof(Header) - sizeof(uint64_t) != header.bytes) {
    return data_loss(
        fmt::format("{} bytes, where {} of weights should lie", bytes.size(), header.bytes));
  }
  std::unique_ptr<PackedFile> packed(new PackedFile());
  packed->payload_ = bytes.subspan(sizeof(Header), header.bytes);
  std::memcpy(&packed->digest_, bytes.data() + sizeof(Header) + header.bytes, sizeof(uint64_t));
  return packed;
}

Result<std::unique_ptr<PackedFile>> PackedFile::open(const std::filesystem::path& path,
                                                     const PackedKey& key) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto packed = parse((*file)->bytes(), key);
  if (!packed.ok()) return packed.status().with_context(path.string());
  (*packed)->file_ = *std::move(file);
  return packed;
}

void PackedFile::read_ahead(size_t begin, size_t bytes) const {
  if (file_ != nullptr) file_->read_ahead(sizeof(Header) + begin, bytes);
}

void PackedFile::copy(size_t begin, std::span<std::byte> out) const {
  if (file_ != nullptr) {
    file_->copy(sizeof(Header) + begin, out);
  } else {
    std::ranges::copy(payload_.subspan(begin, out.size()), out.begin());
  }
}

Result<std::unique_ptr<PackedWriter>> PackedWriter::create(const std::filesystem::path& path,
                                                           const PackedKey& key) {
  auto file = FileWriter::create(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<PackedWriter> writer(new PackedWriter(key));
  writer->file_ = *std::move(file);
  const Header header = header_of(key);
  const std::string_view text(reinterpret_cast<const char*>(&header), sizeof(header));
  if (Status s = writer->file_->append(text); !s.ok()) return s;
  return writer;
}

Status PackedWriter::append(std::span<const std::byte> piece) {
  check(written_ % kPackedChunk == 0, "only the last piece is shorter than whole chunks");
  for (size_t i = 0; i < piece.size(); i += kPackedChunk) {
    const auto chunk = piece.subspan(i, std::min(kPackedChunk, piece.size() - i));
    digest_ += packed_chunk_digest((written_ + i) / kPackedChunk, chunk);
  }
  written_ += piece.size();
  return file_->append({reinterpret_cast<const char*>(piece.data()), piece.size()});
}

Status PackedWriter::commit() {
  if (written_ != key_.bytes) return internal_error("packed weights are not as long as planned");
  const std::string_view text(reinterpret_cast<const char*>(&digest_), sizeof(digest_));
  if (Status s = file_->append(text); !s.ok()) return s;
  return file_->commit();
}

}  // namespace pelton::weights
