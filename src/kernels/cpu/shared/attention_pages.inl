// Page formats over Vec and the kernel that writes pages. Included inside a level's unnamed
// namespace, after its vec.h. The layout is in attention_kernels.h.

// A storage format: its element type and how kLanes of them become floats. `kScaled` codes are
// multiplied by their token's scale, which the fold applies to scores and weights.
struct FormatF32 {
  using Element = float;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static Vec widen(const float* p) { return load(p); }
};
struct FormatF16 {
  using Element = uint16_t;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static Vec widen(const uint16_t* p) { return load_f16(p); }
};
struct FormatBF16 {
  using Element = uint16_t;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static Vec widen(const uint16_t* p) { return load_bf16(p); }
};
struct FormatFp8 {
  using Element = uint8_t;
  static constexpr bool kScaled = false;
  [[gnu::always_inline]] static Vec widen(const uint8_t* p) { return load_fp8(p); }
};
struct FormatInt8 {
  using Element = int8_t;
  static constexpr bool kScaled = true;
  [[gnu::always_inline]] static Vec widen(const int8_t* p) { return load_i8(p); }
};

// Formats whose products read pages directly where few rows share a tile.
template <typename Format>
constexpr bool kReadsPages = false;
template <>
constexpr bool kReadsPages<FormatF32> = true;
template <>
constexpr bool kReadsPages<FormatF16> = true;

// The first n < kLanes elements; the other lanes are 0.
template <typename Format>
[[gnu::always_inline]] inline Vec widen_first(const typename Format::Element* p, int n) {
  typename Format::Element some[kLanes] = {};
  for (int i = 0; i < n; ++i) some[i] = p[i];
  return Format::widen(some);
}

// Where one KV head of one block begins, in the key or the value half of its block.
[[gnu::always_inline]] inline int64_t head_offset(const KvLayerView& cache, int32_t block,
                                                  int32_t head) {
  return static_cast<int64_t>(block) * static_cast<int64_t>(cache.block_bytes) +
         head * cache.block_tokens * kv_head_token_bytes(cache.format, cache.head_dim);
}
// Where a head's int8 scales begin, from its own beginning.
[[gnu::always_inline]] inline int64_t scales_offset(const KvLayerView& cache) {
  return static_cast<int64_t>(cache.block_tokens) * cache.head_dim;
}

// E4M3, nearest even, saturating; NaN becomes 0x7F.
[[gnu::always_inline]] inline uint8_t narrow_fp8(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 24 & 0x80u;
  // Below 2^-6 the unit is 2^-9: adding 2^14 lets the float adder round to it.
  const float aligned = __builtin_bit_cast(float, magnitude) + 16384.0f;
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, aligned) - 0x46800000u;
  const uint32_t normal = (magnitude + 0x7FFFFu + (magnitude >> 20 & 1u) - 0x3C000000u) >> 20;
  uint32_t code = magnitude < 0x3C800000u ? subnormal : normal;
  code = magnitude >= 0x43E00000u ? 0x7Eu : code;
  code = magnitude > 0x7F800000u ? 0x7Fu : code;
  return static_cast<uint8_t>(sign | code);
}
[[gnu::always_inline]] inline uint16_t narrow_bf16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

// Converts kLanes floats.
[[gnu::always_inline]] inline void narrow(FormatF32 /*format*/, const float* x, float* out) {
  for (int i = 0; i < kLanes; ++i) out[i] = x[i];
}
[[gnu::always_inline]] inline void narrow(FormatF16 /*format*/, const float* x, uint16_t* out) {
  store_f16(out, load(x));
}
[[gnu::always_inline]] inline void narrow(FormatBF16 /*format*/, const float* x, uint16_t* out) {
  for (int i = 0; i < kLanes; ++i) out[i] = narrow_bf16(x[i]);
}
[[gnu::always_inline]] inline void narrow(FormatFp8 /*format*/, const float* x, uint8_t* out) {
  for (int i = 0; i < kLanes; ++i) out[i] = narrow_fp8(x[i]);
}
// x is already divided by the scale. A NaN's code does not matter: its scale is NaN.
[[gnu::always_inline]] inline void narrow(FormatInt8 /*format*/, const float* x, int8_t* out) {
  float whole[kLanes];
  const Vec bounded = min(max(load(x), splat(-127.0f)), splat(127.0f));
  store(whole, round_nearest(bounded));
  for (int i = 0; i < kLanes; ++i) out[i] = static_cast<int8_t>(static_cast<int32_t>(whole[i]));
}

// Scale of a head's values: largest magnitude / 127; NaN if any of them is not finite.
[[gnu::always_inline]] inline float int8_scale(const float* x, int64_t n) {
  float largest = 0.0f;
  float poison = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    largest = magnitude > largest ? magnitude : largest;
    poison += x[i] * 0.0f;
  }
  return largest / 127.0f + poison;
}

// Calls emit(offset, elements, count) with the converted elements of one head.
template <typename Format, typename Emit>
[[gnu::always_inline]] inline void narrow_head(const float* x, int64_t n, float inverse_scale,
                                               Emit emit) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int count = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
    float values[kLanes] = {};
    for (int k = 0; k < count; ++k) values[k] = x[i + k];
    if constexpr (Format::kScaled) store(values, load(values) * splat(inverse_scale));
    typename Format::Element elements[kLanes];
    narrow(Format{}, values, elements);
    emit(i, elements, count);
  }
}

template <typename Format>
void append_heads(const KvAppendTask& task) {
  using Element = typename Format::Element;
  const KvLayerView& cache = task.cache;
  const int32_t block = task.slot / cache.block_tokens;
  const int32_t offset = task.slot % cache.block_tokens;
  const int64_t n = cache.head_dim;
  for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
    const int64_t begin = head_offset(cache, block, h);
    const float* key = task.keys + h * n;
    const float* value = task.values + h * n;
    float key_scale = 1.0f;
    float value_scale = 1.0f;
    if constexpr (Format::kScaled) {
      key_scale = int8_scale(key, n);
      value_scale = int8_scale(value, n);
      const int64_t at = begin + scales_offset(cache) + offset * int64_t{4};
      __builtin_memcpy(cache.keys + at, &key_scale, 4);
      __builtin_memcpy(cache.values + at, &value_scale, 4);
    }
    const float key_inverse = key_scale == 0.0f ? 0.0f : 1.0f / key_scale;
    const float value_inverse = value_scale == 0.0f ? 0.0f : 1.0f / value_scale;
    auto* key_out = reinterpret_cast<Element*>(cache.keys + begin) +
                    offset / kKeyGroup * kKeyGroup * n + offset % kKeyGroup;
    narrow_head<Format>(key, n, key_inverse, [&](int64_t i, const Element* elements, int count) {
      for (int k = 0; k < count; ++k) key_out[(i + k) * kKeyGroup] = elements[k];
    });
    auto* value_out = reinterpret_cast<Element*>(cache.values + begin) + offset * n;
    narrow_head<Format>(value, n, value_inverse,
                        [&](int64_t i, const Element* elements, int count) {
                          for (int k = 0; k < count; ++k) value_out[i + k] = elements[k];
                        });
  }
}

void append(const KvAppendTask& task) {
  switch (task.cache.format) {
    case KvFormat::kF32:
      return append_heads<FormatF32>(task);
    case KvFormat::kF16:
      return append_heads<FormatF16>(task);
    case KvFormat::kBF16:
      return append_heads<FormatBF16>(task);
    case KvFormat::kFp8:
      return append_heads<FormatFp8>(task);
    case KvFormat::kInt8:
      return append_heads<FormatInt8>(task);
  }
}
