// The packed formats over an ISA's vectors: how a 32-column block of one row group (kRows of a
// tile's 16 rows) becomes eight vectors of codes and its scales. Included inside an ISA level's
// unnamed namespace, after its `Isa`.
//
// Isa: kRows; Bytes, Int, Float (registers of kRows 32-bit lanes); load, mask, shift16<n> (left, or
// right if negative), either, lookup; u8_to_int, s8_to_int, u16_to_int, int operations; load_f16,
// to_float, mul, negate.

// How codes become dot products.
enum class Dot {
  kUnsigned,  // the sum over 16 columns, offset included, fits 16 bits wherever it is added in
              // pairs
  kSigned,    // 8-bit signed codes
  kHalves,    // unsigned; columns 0..15 and 16..31 have scales of their own
};

template <class I>
struct Scales {
  typename I::Float scale;
  typename I::Float addend;  // minus the minimum; unused without one
};

template <class I>
[[gnu::always_inline]] inline Scales<I> scale_only(typename I::Float scale) {
  Scales<I> s;
  s.scale = scale;
  return s;
}

// Integer scales of the two halves of a block, and the float that multiplies both.
template <class I>
struct HalfScales {
  typename I::Int scale[2];
  typename I::Int minimum[2];  // Q2_K
  typename I::Float d;
  typename I::Float dmin;
};

template <class I>
[[gnu::always_inline]] inline void unpack_nibbles(const uint8_t* low, typename I::Bytes* w) {
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const auto x = I::load(low + 64 * v);
    w[v] = I::mask(x, 15);
    w[v + 4] = I::mask(I::template shift16<-4>(x), 15);
  }
}

// Field `kGroup` % (8 / kBits) of kBits each, moved to bit kTo and masked.
template <class I, int kBits, int kTo, int kGroup>
[[gnu::always_inline]] inline typename I::Bytes field(const typename I::Bytes& x) {
  constexpr int kFrom = kGroup % (8 / kBits) * kBits;
  return I::mask(I::template shift16<kTo - kFrom>(x), ((1 << kBits) - 1) << kTo);
}

template <class I>
[[gnu::always_inline]] inline void unpack_two_bits(const uint8_t* low, typename I::Bytes* w) {
  const auto a = I::load(low);
  const auto b = I::load(low + 64);
  w[0] = field<I, 2, 0, 0>(a);
  w[1] = field<I, 2, 0, 1>(a);
  w[2] = field<I, 2, 0, 2>(a);
  w[3] = field<I, 2, 0, 3>(a);
  w[4] = field<I, 2, 0, 0>(b);
  w[5] = field<I, 2, 0, 1>(b);
  w[6] = field<I, 2, 0, 2>(b);
  w[7] = field<I, 2, 0, 3>(b);
}

template <class I, int kTo>
[[gnu::always_inline]] inline void add_one_bit(const uint8_t* high, typename I::Bytes* w) {
  const auto x = I::load(high);
  w[0] = I::either(w[0], field<I, 1, kTo, 0>(x));
  w[1] = I::either(w[1], field<I, 1, kTo, 1>(x));
  w[2] = I::either(w[2], field<I, 1, kTo, 2>(x));
  w[3] = I::either(w[3], field<I, 1, kTo, 3>(x));
  w[4] = I::either(w[4], field<I, 1, kTo, 4>(x));
  w[5] = I::either(w[5], field<I, 1, kTo, 5>(x));
  w[6] = I::either(w[6], field<I, 1, kTo, 6>(x));
  w[7] = I::either(w[7], field<I, 1, kTo, 7>(x));
}

template <class I>
[[gnu::always_inline]] inline void add_two_bits(const uint8_t* high, typename I::Bytes* w) {
  const auto a = I::load(high);
  const auto b = I::load(high + 64);
  w[0] = I::either(w[0], field<I, 2, 4, 0>(a));
  w[1] = I::either(w[1], field<I, 2, 4, 1>(a));
  w[2] = I::either(w[2], field<I, 2, 4, 2>(a));
  w[3] = I::either(w[3], field<I, 2, 4, 3>(a));
  w[4] = I::either(w[4], field<I, 2, 4, 0>(b));
  w[5] = I::either(w[5], field<I, 2, 4, 1>(b));
  w[6] = I::either(w[6], field<I, 2, 4, 2>(b));
  w[7] = I::either(w[7], field<I, 2, 4, 3>(b));
}

// A format's traits. `codes` gives unsigned codes (code = value + kOffset) except for kSigned,
// where they are signed bytes. `record` is the tile's scale record at the row group; `i` the block
// in it.
template <class I, WeightFormat kFormat>
struct Format;

template <class I>
struct HalfScaleOnly {  // one f16 a block
  static constexpr int kRecordBlocks = 1;
  static constexpr bool kMinimum = false;
  [[gnu::always_inline]] static Scales<I> scales(const uint8_t* record, int group, int) {
    return scale_only<I>(I::load_f16(record + 2 * I::kRows * group));
  }
};

template <class I>
struct HalfScaleMinimum {  // f16 scale and f16 addend a block
  static constexpr int kRecordBlocks = 1;
  static constexpr bool kMinimum = true;
  [[gnu::always_inline]] static Scales<I> scales(const uint8_t* record, int group, int) {
    return {I::load_f16(record + 2 * I::kRows * group),
            I::load_f16(record + 32 + 2 * I::kRows * group)};
  }
};

template <class I>
struct SixBitScaleMinimum {  // Q4_K, Q5_K
  static constexpr int kRecordBlocks = 8;
  static constexpr bool kMinimum = true;
  [[gnu::always_inline]] static Scales<I> scales(const uint8_t* record, int group, int i) {
    const uint8_t* bytes = record + 64 + I::kRows * group;
    typename I::Int scale, minimum;
    if (i < 4) {
      scale = I::and_int(I::u8_to_int(bytes + 16 * i), 63);
      minimum = I::and_int(I::u8_to_int(bytes + 16 * (i + 4)), 63);
    } else {
      const auto low = I::u8_to_int(bytes + 16 * (i + 4));
      const auto scale_top = I::u8_to_int(bytes + 16 * (i - 4));
      const auto minimum_top = I::u8_to_int(bytes + 16 * i);
      scale = I::or_int(I::and_int(low, 15), I::and_int(I::template shift_right<2>(scale_top), 48));
      minimum = I::or_int(I::template shift_right<4>(low),
                          I::and_int(I::template shift_right<2>(minimum_top), 48));
    }
    const auto d = I::load_f16(record + 2 * I::kRows * group);
    const auto dmin = I::load_f16(record + 32 + 2 * I::kRows * group);
    return {I::mul(d, I::to_float(scale)), I::negate(I::mul(dmin, I::to_float(minimum)))};
  }
};

template <class I>
struct Format<I, WeightFormat::kQ4_0> : HalfScaleOnly<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 8;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ4_1> : HalfScaleMinimum<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ5_0> : HalfScaleOnly<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 16;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
    add_one_bit<I, 4>(high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ5_1> : HalfScaleMinimum<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
    add_one_bit<I, 4>(high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ8_0> : HalfScaleOnly<I> {
  static constexpr Dot kDot = Dot::kSigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = I::load(low + 64 * g);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ4_K> : SixBitScaleMinimum<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ5_K> : SixBitScaleMinimum<I> {
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
    add_one_bit<I, 4>(high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kIQ4_NL> : HalfScaleOnly<I> {
  static constexpr Dot kDot = Dot::kSigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = I::lookup(I::iq4_table(), w[g]);
  }
};

template <class I>
struct Format<I, WeightFormat::kIQ4_XS> {
  static constexpr int kRecordBlocks = 8;
  static constexpr bool kMinimum = false;
  static constexpr Dot kDot = Dot::kSigned;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static Scales<I> scales(const uint8_t* record, int group, int i) {
    const auto low = I::u8_to_int(record + 64 + 16 * (i / 2) + I::kRows * group);
    const auto high = I::u16_to_int(record + 32 + 2 * I::kRows * group);
    const auto scale =
        I::or_int(I::and_int(I::shift_right_by(low, 4 * (i % 2)), 15),
                  I::template shift_left<4>(I::and_int(I::shift_right_by(high, 2 * i), 3)));
    const auto d = I::load_f16(record + 2 * I::kRows * group);
    return scale_only<I>(I::mul(d, I::to_float(I::sub_int(scale, 32))));
  }
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    Format<I, WeightFormat::kIQ4_NL>::codes(low, high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kMXFP4> {
  static constexpr int kRecordBlocks = 1;
  static constexpr bool kMinimum = false;
  static constexpr Dot kDot = Dot::kUnsigned;
  static constexpr int kOffset = 12;
  [[gnu::always_inline]] static Scales<I> scales(const uint8_t* record, int group, int) {
    return scale_only<I>(I::mxfp4_scale(I::u8_to_int(record + I::kRows * group)));
  }
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = I::lookup(I::fp4_table(), w[g]);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ6_K> {
  static constexpr int kRecordBlocks = 8;
  static constexpr bool kMinimum = false;
  static constexpr Dot kDot = Dot::kHalves;
  static constexpr int kOffset = 32;
  [[gnu::always_inline]] static HalfScales<I> half_scales(const uint8_t* record, int group, int i) {
    HalfScales<I> s;
    for (int h = 0; h < 2; ++h) {
      s.scale[h] = I::s8_to_int(record + 32 + 16 * (2 * i + h) + I::kRows * group);
    }
    s.d = I::load_f16(record + 2 * I::kRows * group);
    return s;
  }
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    unpack_nibbles<I>(low, w);
    add_two_bits<I>(high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ3_K> {
  static constexpr int kRecordBlocks = 8;
  static constexpr bool kMinimum = false;
  static constexpr Dot kDot = Dot::kHalves;
  static constexpr int kOffset = 4;
  [[gnu::always_inline]] static HalfScales<I> half_scales(const uint8_t* record, int group, int i) {
    HalfScales<I> s;
    const uint8_t* bytes = record + 32 + I::kRows * group;
    for (int h = 0; h < 2; ++h) {
      const int p = 2 * i + h;
      const auto low =
          I::and_int(I::shift_right_by(I::u8_to_int(bytes + 16 * (p % 8)), p / 8 * 4), 15);
      const auto high =
          I::and_int(I::shift_right_by(I::u8_to_int(bytes + 16 * (8 + p % 4)), 2 * (p / 4)), 3);
      s.scale[h] = I::sub_int(I::or_int(low, I::template shift_left<4>(high)), 32);
    }
    s.d = I::load_f16(record + 2 * I::kRows * group);
    return s;
  }
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t* high,
                                           typename I::Bytes* w) {
    unpack_two_bits<I>(low, w);
    add_one_bit<I, 2>(high, w);
  }
};

template <class I>
struct Format<I, WeightFormat::kQ2_K> {
  static constexpr int kRecordBlocks = 8;
  static constexpr bool kMinimum = true;
  static constexpr Dot kDot = Dot::kHalves;
  static constexpr int kOffset = 0;
  [[gnu::always_inline]] static HalfScales<I> half_scales(const uint8_t* record, int group, int i) {
    HalfScales<I> s;
    for (int h = 0; h < 2; ++h) {
      const auto byte = I::u8_to_int(record + 64 + 16 * (2 * i + h) + I::kRows * group);
      s.scale[h] = I::and_int(byte, 15);
      s.minimum[h] = I::template shift_right<4>(byte);
    }
    s.d = I::load_f16(record + 2 * I::kRows * group);
    s.dmin = I::load_f16(record + 32 + 2 * I::kRows * group);
    return s;
  }
  [[gnu::always_inline]] static void codes(const uint8_t* low, const uint8_t*,
                                           typename I::Bytes* w) {
    unpack_two_bits<I>(low, w);
  }
};

// Float scale and addend of half h of a block, for kernels that dequantize.
template <class I, class F>
[[gnu::always_inline]] inline Scales<I> float_scales(const uint8_t* record, int group, int i,
                                                     int h) {
  if constexpr (F::kDot == Dot::kHalves) {
    const HalfScales<I> s = F::half_scales(record, group, i);
    Scales<I> out;
    out.scale = I::mul(s.d, I::to_float(s.scale[h]));
    if constexpr (F::kMinimum) {
      out.addend = I::negate(I::mul(s.dmin, I::to_float(s.minimum[h])));
    }
    return out;
  } else {
    return F::scales(record, group, i);
  }
}

// Pointers to the activations of one block, first row.
struct BlockActivations {
  const int8_t* codes;
  const float* scales;
  const float* sums;
  const float* half_sums;
  const uint32_t* offsets;
};

// Dot products of the two halves of a block, the format's offset already subtracted.
template <class I>
struct HalfDots {
  typename I::Int half[2];
};
