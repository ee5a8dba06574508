#include "kernels/cuda/matmul/int4_pack.h"

#include <cstring>

namespace pelton::kernels::cuda {

namespace {

int64_t tiles_of(int64_t n) { return (n + kInt4TileRows - 1) / kInt4TileRows; }

// The word that lane `lane` extracts as number `word` of half `half`.
template <typename CodeAt>
uint32_t pack_word(int half, int lane, int word, const CodeAt& code_at) {
  const int g = lane / 4;
  const int t = lane % 4;
  uint32_t packed = 0;
  for (int s = 0; s < 8; ++s) {
    const int row = g + 8 * (s & 1);
    const int input = 32 * t + 16 * (half ^ (t >> 1)) + 4 * word + 2 * ((s >> 1) & 1) + (s >> 2);
    packed |= static_cast<uint32_t>(code_at(row, input) & 15) << (4 * (s & 3) + 16 * (s >> 2));
  }
  return packed;
}

// The same of a whole tile, whose rows lie `stride` bytes apart: four inputs of each of two rows
// are interleaved at once.
void pack_whole(const uint8_t* codes, int64_t stride, std::byte* block) {
  for (int item = 0; item < 256; ++item) {
    const int half = item / 128;
    const int g = item / 16 % 8;
    const int t = item / 4 % 4;
    const uint8_t* at = codes + g * stride + 32 * t + 16 * (half ^ (t >> 1)) + 4 * (item % 4);
    uint32_t lower;
    uint32_t upper;
    std::memcpy(&lower, at, sizeof lower);
    std::memcpy(&upper, at + 8 * stride, sizeof upper);
    const uint32_t pairs = (lower & 0x0F0F0F0Fu) | (upper & 0x0F0F0F0Fu) << 4;
    const uint32_t word =
        (pairs & 0xFF0000FFu) | (pairs >> 8 & 0x0000FF00u) | (pairs << 8 & 0x00FF0000u);
    std::memcpy(block + 4 * item, &word, sizeof word);
  }
}

}  // namespace

size_t int4_packed_bytes(int64_t n, int64_t k) {
  return static_cast<size_t>(tiles_of(n) * (k / kInt4Group)) * kInt4BlockBytes;
}

void int4_pack(std::span<const uint8_t> codes, std::span<const uint16_t> scales, int64_t n,
               int64_t k, std::span<std::byte> out) {
  const int64_t groups = k / kInt4Group;
  for (int64_t tile = 0; tile < tiles_of(n); ++tile) {
    for (int64_t group = 0; group < groups; ++group) {
      std::byte* block = out.data() + static_cast<size_t>(tile * groups + group) * kInt4BlockBytes;
      const auto code_at = [&](int row, int input) -> int {
        const int64_t j = tile * kInt4TileRows + row;
        return j < n ? codes[static_cast<size_t>(j * k + group * kInt4Group + input)] : 8;
      };
      if ((tile + 1) * kInt4TileRows <= n) {
        pack_whole(codes.data() + tile * kInt4TileRows * k + group * kInt4Group, k, block);
      } else {
        for (int item = 0; item < 256; ++item) {
          const uint32_t word = pack_word(item / 128, item / 4 % 32, item % 4, code_at);
          std::memcpy(block + 4 * item, &word, sizeof word);
        }
      }
      for (int row = 0; row < kInt4TileRows; ++row) {
        const int64_t j = tile * kInt4TileRows + row;
        const uint16_t scale = j < n ? scales[static_cast<size_t>(j * groups + group)] : 0;
        std::memcpy(block + 1024 + 2 * row, &scale, sizeof scale);
      }
    }
  }
}

}  // namespace pelton::kernels::cuda
