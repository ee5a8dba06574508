#include "kernels/cuda/matmul/int4_pack.h"

#include <array>
#include <cstring>

namespace pelton::kernels::cuda {

namespace {

int64_t tiles_of(int64_t n) { return (n + kInt4TileRows - 1) / kInt4TileRows; }

// A block of a tile whose 16 rows lie `stride` bytes apart: pairs of inputs of two rows at once.
void pack_whole(const uint8_t* codes, int64_t stride, std::byte* block) {
  for (int item = 0; item < 256; ++item) {
    const int half = item / 128;
    const int g = item / 16 % 8;
    const int t = item / 4 % 4;
    const uint8_t* at = codes + g * stride + 64 * half + 16 * (item % 4) + 2 * t;
    const auto pair = [&](int first) {
      uint16_t lower;
      uint16_t upper;
      std::memcpy(&lower, at + first, sizeof lower);
      std::memcpy(&upper, at + 8 * stride + first, sizeof upper);
      return static_cast<uint32_t>((lower & 0x0F0F) | (upper & 0x0F0F) << 4);
    };
    const uint32_t near = pair(0);
    const uint32_t far = pair(8);
    const uint32_t word =
        (near & 0xFF) | (far & 0xFF) << 8 | (near & 0xFF00) << 8 | (far & 0xFF00) << 16;
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
        std::array<uint32_t, 256> words = {};
        for (int row = 0; row < kInt4TileRows; ++row) {
          for (int input = 0; input < kInt4Group; ++input) {
            const Int4Place at = int4_place(row, input);
            words[at.byte / 4] |= static_cast<uint32_t>(code_at(row, input) & 15) << at.bit;
          }
        }
        std::memcpy(block, words.data(), sizeof words);
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
