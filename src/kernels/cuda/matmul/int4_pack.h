// Layout of 4-bit weights with one scale per 128 inputs, as the small-m kernel streams them.
//
// Output rows in tiles of 16, inputs in groups of 128. A block holds one tile of one group:
//   1,024 bytes of codes, then 16 f16 scales, one a row: 1,056 bytes.
// Blocks lie [tile][group]. value = (code - 8) * scale. In the codes, half h (512 bytes), lane l =
// 4 * g + t (16 bytes), word i (4 bytes), code s of the word is
//   row g + 8 * (s & 1),  input 64 h + 16 i + 2 t + 8 ((s >> 1) & 1) + (s >> 2)
// and begins at bit 4 (s & 3) + 16 (s >> 2): what lane l feeds to the matrix unit in the step of 16
// inputs that word i is, where a mask (and for s & 2 a shift by a byte) makes it a bf16 number. The
// rows that fill up the last tile have code 8 and scale 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pelton::kernels::cuda {

inline constexpr int32_t kInt4Group = 128;
inline constexpr int32_t kInt4TileRows = 16;
inline constexpr size_t kInt4BlockBytes = 1056;

// Where in its block a code lies: in the 32-bit word at `byte`, from bit `bit` on.
struct Int4Place {
  size_t byte;
  int bit;
};
// `row` of the tile (0..15), `input` of the group (0..127).
constexpr Int4Place int4_place(int row, int input) {
  const int lane = 4 * (row % 8) + input % 8 / 2;
  const int code = row / 8 + 2 * (input % 16 / 8) + 4 * (input % 2);
  return {static_cast<size_t>(512 * (input / 64) + 16 * lane + 4 * (input % 64 / 16)),
          4 * (code % 4) + 16 * (code / 4)};
}

size_t int4_packed_bytes(int64_t n, int64_t k);
// `codes`: [n][k], one code 0..15 a byte; `scales`: [n][k / 128] f16 bits. k is a multiple of 128.
// `out` has int4_packed_bytes(n, k).
void int4_pack(std::span<const uint8_t> codes, std::span<const uint16_t> scales, int64_t n,
               int64_t k, std::span<std::byte> out);

}  // namespace pelton::kernels::cuda
