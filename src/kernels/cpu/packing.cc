#include "kernels/cpu/packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/ref/quant_blocks.h"

namespace pelton::kernels {
namespace {

using enum WeightFormat;

using Rows = std::array<const uint8_t*, kTileRows>;  // the same block of 16 rows

uint32_t load_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
uint64_t load_u64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
void store_u32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, sizeof(v)); }

// `count` vectors whose dword r is the dword at `offset` + 4v of row r.
void transpose_dwords(const Rows& rows, int offset, int count, uint8_t* out) {
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* in = rows[static_cast<size_t>(r)] + offset;
    for (int v = 0; v < count; ++v) store_u32(out + v * 64 + r * 4, load_u32(in + v * 4));
  }
}

// A header field of `bytes` bytes, row beside row.
void side_by_side(const Rows& rows, int offset, int bytes, uint8_t* out) {
  for (int r = 0; r < kTileRows; ++r) {
    std::memcpy(out + r * bytes, rows[static_cast<size_t>(r)] + offset, static_cast<size_t>(bytes));
  }
}
// `count` single bytes: byte p of all rows, then byte p + 1.
void transpose_bytes(const Rows& rows, int offset, int count, uint8_t* out) {
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* in = rows[static_cast<size_t>(r)] + offset;
    for (int p = 0; p < count; ++p) out[p * kTileRows + r] = in[p];
  }
}

// 32 bits, bit i of column i, to the word whose byte j holds bit g of column 4g + j.
uint32_t group_bits(uint32_t bits) {
  uint32_t word = 0;
  for (int g = 0; g < 8; ++g) {
    const uint32_t spread = ((bits >> (4 * g) & 0xFu) * 0x00204081u) & 0x01010101u;
    word |= spread << g;
  }
  return word;
}

// Bit `bit` of 32 bytes, column i in byte i, in the same form.
uint32_t group_bit_plane(const uint8_t* bytes, int bit) {
  uint32_t word = 0;
  for (int w = 0; w < 4; ++w) {
    const uint64_t t = load_u64(bytes + 8 * w) >> bit & 0x0101010101010101u;
    word |= static_cast<uint32_t>(t) << (2 * w);
    word |= static_cast<uint32_t>(t >> 32) << (2 * w + 1);
  }
  return word;
}

// 2-bit fields at `shift` of 32 bytes, column i in byte i: two words, groups 0..3 and 4..7.
void group_two_bits(const uint8_t* bytes, int shift, uint8_t* first, uint8_t* second) {
  uint32_t words[2] = {};
  for (int g = 0; g < 8; ++g) {
    words[g / 4] |= (load_u32(bytes + 4 * g) >> shift & 0x03030303u) << (2 * (g % 4));
  }
  store_u32(first, words[0]);
  store_u32(second, words[1]);
}

// Nibbles of 32 columns, column i in byte i at `shift` (0 or 4): four words, groups v and v + 4.
void group_nibbles(const uint8_t* bytes, int shift, uint8_t* out) {
  for (int v = 0; v < 4; ++v) {
    const uint32_t low = load_u32(bytes + 4 * v) >> shift & 0x0F0F0F0Fu;
    const uint32_t high = load_u32(bytes + 16 + 4 * v) >> shift & 0x0F0F0F0Fu;
    store_u32(out + v * 64, low | high << 4);
  }
}

struct Planes {
  uint8_t* low;
  uint8_t* high;
  uint8_t* scales;
};

// One file block (32 or 256 columns) of 16 rows, to the planes' positions of its first block.
void pack_block32(WeightFormat format, const Rows& rows, const Planes& p) {
  switch (format) {
    case kQ4_0:
    case kIQ4_NL:
      side_by_side(rows, 0, 2, p.scales);
      return transpose_dwords(rows, 2, 4, p.low);
    case kQ4_1:
      side_by_side(rows, 0, 2, p.scales);
      side_by_side(rows, 2, 2, p.scales + 32);
      return transpose_dwords(rows, 4, 4, p.low);
    case kQ5_0:
    case kQ5_1: {
      const int bits = format == kQ5_0 ? 2 : 4;
      side_by_side(rows, 0, 2, p.scales);
      if (format == kQ5_1) side_by_side(rows, 2, 2, p.scales + 32);
      for (int r = 0; r < kTileRows; ++r) {
        store_u32(p.high + 4 * r, group_bits(load_u32(rows[static_cast<size_t>(r)] + bits)));
      }
      return transpose_dwords(rows, bits + 4, 4, p.low);
    }
    case kQ8_0:
      side_by_side(rows, 0, 2, p.scales);
      return transpose_dwords(rows, 2, 8, p.low);
    case kMXFP4:
      side_by_side(rows, 0, 1, p.scales);
      return transpose_dwords(rows, 1, 4, p.low);
    default:
      check(false, "not a format of 32-column blocks");
  }
}

// The low and high planes of a K-format block: eight blocks of 32 columns.
void pack_codes256(WeightFormat format, const Rows& rows, const Planes& p) {
  const PackedGeometry g = packed_geometry(format);
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* b = rows[static_cast<size_t>(r)];
    for (int i = 0; i < 8; ++i) {
      uint8_t* low = p.low + i * g.low + 4 * r;
      uint8_t* high = p.high + i * g.high + 4 * r;
      switch (format) {
        case kQ2_K:
          group_two_bits(b + 16 + i / 4 * 32, 2 * (i % 4), low, low + 64);
          break;
        case kQ3_K:
          group_two_bits(b + 32 + i / 4 * 32, 2 * (i % 4), low, low + 64);
          store_u32(high, group_bit_plane(b, i));
          break;
        case kQ4_K:
          group_nibbles(b + 16 + i / 2 * 32, i % 2 * 4, low);
          break;
        case kQ5_K:
          group_nibbles(b + 48 + i / 2 * 32, i % 2 * 4, low);
          store_u32(high, group_bit_plane(b + 16, i));
          break;
        case kQ6_K:
          group_nibbles(b + i / 4 * 64 + i % 2 * 32, i % 4 / 2 * 4, low);
          group_two_bits(b + 128 + i / 4 * 32, 2 * (i % 4), high, high + 64);
          break;
        case kIQ4_XS:
          for (int v = 0; v < 4; ++v) store_u32(low + v * 64, load_u32(b + 8 + i * 16 + v * 4));
          break;
        default:
          check(false, "not a format of 256-column blocks");
      }
    }
  }
}

void pack_scales256(WeightFormat format, const Rows& rows, uint8_t* out) {
  switch (format) {
    case kQ2_K:
      side_by_side(rows, 80, 2, out);
      side_by_side(rows, 82, 2, out + 32);
      return transpose_bytes(rows, 0, 16, out + 64);
    case kQ3_K:
      side_by_side(rows, 108, 2, out);
      return transpose_bytes(rows, 96, 12, out + 32);
    case kQ4_K:
    case kQ5_K:
      side_by_side(rows, 0, 2, out);
      side_by_side(rows, 2, 2, out + 32);
      return transpose_bytes(rows, 4, 12, out + 64);
    case kQ6_K:
      side_by_side(rows, 208, 2, out);
      return transpose_bytes(rows, 192, 16, out + 32);
    case kIQ4_XS:
      side_by_side(rows, 0, 2, out);
      side_by_side(rows, 2, 2, out + 32);
      return transpose_bytes(rows, 4, 4, out + 64);
    default:
      check(false, "not a format of 256-column blocks");
  }
}

float f16_at(const uint8_t* p, int row) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * row, sizeof(bits));
  return f16_to_f32(bits);
}

// Scales and minima of one row of one block; `s` is the tile's scale record, `i` the block in it.
struct RowScales {
  float scale[2];
  float minimum[2];
};
RowScales row_scales(WeightFormat format, const uint8_t* s, int i, int row) {
  const auto both = [](float scale, float minimum) {
    return RowScales{{scale, scale}, {minimum, minimum}};
  };
  uint8_t bytes[16];
  const auto gather = [&](int offset, int count) {
    for (int p = 0; p < count; ++p) bytes[p] = s[offset + p * kTileRows + row];
  };
  switch (format) {
    case kQ4_1:
    case kQ5_1:
      return both(f16_at(s, row), -f16_at(s + 32, row));
    case kMXFP4:
      return both(ref::mxfp4_scale(s[row]), 0.0f);
    case kQ2_K: {
      gather(64, 16);
      RowScales out;
      for (int h = 0; h < 2; ++h) {
        out.scale[h] = f16_at(s, row) * static_cast<float>(bytes[2 * i + h] & 0xF);
        out.minimum[h] = f16_at(s + 32, row) * static_cast<float>(bytes[2 * i + h] >> 4);
      }
      return out;
    }
    case kQ3_K: {
      gather(32, 12);
      uint8_t scales[16];
      ref::unpack_scales_q3(bytes, scales);
      const float d = f16_at(s, row);
      return {{d * static_cast<float>(scales[2 * i] - 32),
               d * static_cast<float>(scales[2 * i + 1] - 32)},
              {}};
    }
    case kQ4_K:
    case kQ5_K: {
      gather(64, 12);
      uint8_t scales[8], minima[8];
      ref::unpack_scales_minima(bytes, scales, minima);
      return both(f16_at(s, row) * static_cast<float>(scales[i]),
                  f16_at(s + 32, row) * static_cast<float>(minima[i]));
    }
    case kQ6_K: {
      gather(32, 16);
      const float d = f16_at(s, row);
      return {{d * static_cast<float>(static_cast<int8_t>(bytes[2 * i])),
               d * static_cast<float>(static_cast<int8_t>(bytes[2 * i + 1]))},
              {}};
    }
    case kIQ4_XS: {
      gather(64, 4);
      const unsigned high = s[32 + 2 * row] | static_cast<unsigned>(s[33 + 2 * row]) << 8;
      const int scale =
          (bytes[i / 2] >> (4 * (i % 2)) & 0xF) | static_cast<int>(high >> (2 * i) & 3u) << 4;
      return both(f16_at(s, row) * static_cast<float>(scale - 32), 0.0f);
    }
    default:
      return both(f16_at(s, row), 0.0f);
  }
}

// The 32 codes of one row of one block, as the integers that scales multiply.
void row_codes(WeightFormat format, const uint8_t* low, const uint8_t* high, int row,
               int16_t* codes) {
  for (int i = 0; i < kBlockColumns; ++i) {
    const int g = i / 4;
    const int at = 4 * row + i % 4;
    const auto nib = [&] { return low[g % 4 * 64 + at] >> (g / 4 * 4) & 0xF; };
    const auto low2 = [&] { return low[g / 4 * 64 + at] >> (2 * (g % 4)) & 3; };
    const auto high1 = [&] { return high[at] >> g & 1; };
    int code = 0;
    switch (format) {
      case kQ4_0:
        code = nib() - 8;
        break;
      case kQ4_1:
      case kQ4_K:
        code = nib();
        break;
      case kQ5_0:
        code = (nib() | high1() << 4) - 16;
        break;
      case kQ5_1:
      case kQ5_K:
        code = nib() | high1() << 4;
        break;
      case kQ8_0:
        code = static_cast<int8_t>(low[g * 64 + at]);
        break;
      case kQ2_K:
        code = low2();
        break;
      case kQ3_K:
        code = (low2() | high1() << 2) - 4;
        break;
      case kQ6_K:
        code = (nib() | (high[g / 4 * 64 + at] >> (2 * (g % 4)) & 3) << 4) - 32;
        break;
      case kIQ4_NL:
      case kIQ4_XS:
        code = ref::kIq4Values[nib()];
        break;
      case kMXFP4:
        code = ref::kFp4Values[nib()];
        break;
      default:
        check(false, "not a packed format");
    }
    codes[i] = static_cast<int16_t>(code);
  }
}

struct BlockAt {
  const uint8_t* low;
  const uint8_t* high;
  const uint8_t* scales;  // the record that holds the block
  int in_record;
};
BlockAt block_at(const WeightMatrix& weight, const PackedPlanes& planes, int64_t tile,
                 int64_t block) {
  const PackedGeometry g = packed_geometry(weight.format);
  const auto* base = reinterpret_cast<const uint8_t*>(weight.data);
  const int64_t index = tile * planes.blocks + block;
  return {base + index * g.low, base + planes.high_offset + index * g.high,
          base + planes.scales_offset + index / g.scale_blocks * g.scales,
          static_cast<int>(block % g.scale_blocks)};
}

}  // namespace

void pack_tiles(WeightFormat format, int64_t rows, int64_t columns, const std::byte* source,
                std::byte* out, int64_t first_tile, int64_t last_tile) {
  constexpr uint8_t kZeroBlock[256] = {};  // stands for rows beyond the last
  const WeightFormatInfo& info = weight_format_info(format);
  const PackedGeometry g = packed_geometry(format);
  const PackedPlanes planes = packed_planes(format, rows, columns);
  const int64_t file_blocks = columns / info.block_elements;
  const int64_t row_bytes = file_blocks * info.block_bytes;
  const int per_file_block = info.block_elements / kBlockColumns;
  auto* base = reinterpret_cast<uint8_t*>(out);
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    for (int64_t fb = 0; fb < file_blocks; ++fb) {
      Rows block;
      for (int r = 0; r < kTileRows; ++r) {
        const int64_t row = tile * kTileRows + r;
        block[static_cast<size_t>(r)] = row < rows ? reinterpret_cast<const uint8_t*>(source) +
                                                         row * row_bytes + fb * info.block_bytes
                                                   : kZeroBlock;
      }
      const int64_t index = tile * planes.blocks + fb * per_file_block;
      const Planes p = {base + index * g.low, base + planes.high_offset + index * g.high,
                        base + planes.scales_offset + index / g.scale_blocks * g.scales};
      if (per_file_block == 1) {
        pack_block32(format, block, p);
      } else {
        pack_codes256(format, block, p);
        pack_scales256(format, block, p.scales);
      }
    }
  }
}

void decode_packed_block(const WeightMatrix& weight, int64_t tile, int64_t block,
                         DecodedBlock* out) {
  const PackedPlanes planes = packed_planes(weight.format, weight.rows, weight.columns);
  const BlockAt at = block_at(weight, planes, tile, block);
  for (int r = 0; r < kTileRows; ++r) {
    row_codes(weight.format, at.low, at.high, r, out->codes[r]);
    const RowScales s = row_scales(weight.format, at.scales, at.in_record, r);
    for (int h = 0; h < 2; ++h) {
      out->scales[h][r] = s.scale[h];
      out->minima[h][r] = s.minimum[h];
    }
  }
}

void dequantize_weight_row(const WeightMatrix& weight, int64_t row, float* out) {
  check(row >= 0 && row < weight.rows, "row outside the matrix");
  if (weight.layout == WeightLayout::kSource) {
    const auto bytes = weight_bytes(weight.format, static_cast<uint64_t>(weight.columns));
    check(bytes.has_value(), "row is not whole blocks");
    ref::dequantize(weight.format, weight.data + row * static_cast<int64_t>(*bytes), weight.columns,
                    out);
    return;
  }
  const PackedPlanes planes = packed_planes(weight.format, weight.rows, weight.columns);
  const bool has_minimum = weight_format_info(weight.format).has_minimum;
  const int r = static_cast<int>(row % kTileRows);
  for (int64_t block = 0; block < planes.blocks; ++block) {
    const BlockAt at = block_at(weight, planes, row / kTileRows, block);
    int16_t codes[kBlockColumns];
    row_codes(weight.format, at.low, at.high, r, codes);
    const RowScales s = row_scales(weight.format, at.scales, at.in_record, r);
    for (int i = 0; i < kBlockColumns; ++i) {
      const float product = s.scale[i / 16] * static_cast<float>(codes[i]);
      *out++ = has_minimum ? product - s.minimum[i / 16] : product;
    }
  }
}

}  // namespace pelton::kernels
