// The attention fold over Vec; see attention_kernels.h. Included inside a level's unnamed
// namespace, after math.inl and attention_micro.inl.
//
// For each chunk a row starts from the empty state (maximum -inf, sum 0, values 0), takes the tiles
// in order, and the chunk's state is merged into the row's total. Lanes of a tile that a row does
// not see get weight 0, add nothing to the sum, and their values are never multiplied; so a row's
// bits do not depend on what else shares its task.

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kGroupsPerTile = kKeyTile / kKeyGroup;

// Scratch of one task, and the numbers its steps share.
struct Fold {
  int64_t head_dim;
  int64_t stride;     // elements between rows of q, values, total: head_dim padded to 16
  float* q;           // [rows][stride], scaled
  float* scores;      // [rows][kKeyTile]
  float* values;      // [rows][stride] of the current chunk
  float* sums;        // [rows][16] lanes of the current chunk's sum
  float* maxima;      // [rows]
  float* decay;       // [rows] what the last tile's new maximum leaves of the older state
  float* total;       // [rows][stride]
  float* total_max;   // [rows]
  float* total_sum;   // [rows]
  float* key_tile;    // [groups][head_dim][16] f32
  float* value_tile;  // [kKeyTile][stride] f32
};

[[gnu::always_inline]] inline Fold make_fold(const AttentionTask& task, float* scratch) {
  Fold f;
  f.head_dim = task.cache.head_dim;
  f.stride = (f.head_dim + 15) / 16 * 16;
  const auto take = [&scratch](int64_t floats) {
    float* p = scratch;
    scratch += floats;
    return p;
  };
  f.q = take(kMaxQueryRows * f.stride);
  f.values = take(kMaxQueryRows * f.stride);
  f.total = take(kMaxQueryRows * f.stride);
  f.scores = take(kMaxQueryRows * kKeyTile);
  f.sums = take(kMaxQueryRows * 16);
  f.maxima = take(kMaxQueryRows);
  f.decay = take(kMaxQueryRows);
  f.total_max = take(kMaxQueryRows);
  f.total_sum = take(kMaxQueryRows);
  f.key_tile = take(kKeyTile * f.stride);
  f.value_tile = take(kKeyTile * f.stride);
  return f;
}

float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

// total (max, sum, values) = merge(total, part), in this order.
void merge_state(float* total, float* total_max, float* total_sum, const float* part,
                 float part_max, float part_sum, int64_t n) {
  const float m = *total_max > part_max ? *total_max : part_max;
  const float a = exp_of(*total_max - m);
  const float b = exp_of(part_max - m);
  const Vec va = splat(a);
  const Vec vb = splat(b);
  for (int64_t i = 0; i < n; i += kLanes) {
    store(total + i, fma(load(part + i), vb, load(total + i) * va));
  }
  *total_max = m;
  *total_sum = *total_sum * a + part_sum * b;
}

// out = total / sum, with a sink's share of the denominator.
void finish_row(const float* total, float total_max, float total_sum, const float* sink, int64_t n,
                float* out) {
  float numerator = 1.0f;
  float denominator = total_sum;
  if (sink != nullptr) {
    const float m = *sink > total_max ? *sink : total_max;
    numerator = exp_of(total_max - m);
    denominator = total_sum * numerator + exp_of(*sink - m);
  }
  const Vec scale = splat(numerator / denominator);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(total + i) * scale);
  if (i < n) store_first(out + i, load(total + i) * scale, static_cast<int>(n - i));
}

// What one tile shows to the rows of a task.
struct TileView {
  int32_t begin = 0;        // position of its first key
  int32_t first_group = 0;  // groups [first_group, end_group) hold keys that some row sees
  int32_t end_group = 0;
  int32_t low = 0;  // keys [low, high) of the tile that some row sees
  int32_t high = 0;
  int32_t first = 0;  // positions [first, end) of the task see some of it,
  int32_t end = 0;
  int32_t full_first = 0;  // [full_first, full_end) all of it
  int32_t full_end = 0;
  const float* key_scales[kGroupsPerTile] = {};
  const float* value_scales[kGroupsPerTile] = {};
};

[[gnu::always_inline]] inline int32_t lowest_key(const AttentionVariant& variant,
                                                 int32_t position) {
  const int32_t window = variant.sliding_window;
  return window > 0 && position >= window ? position - window + 1 : 0;
}
[[gnu::always_inline]] inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
[[gnu::always_inline]] inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

[[gnu::always_inline]] inline TileView view_tile(const AttentionTask& task, int32_t begin) {
  TileView t;
  const int32_t window = task.variant.sliding_window;
  const int32_t last = task.first_position + task.num_positions - 1;
  t.begin = begin;
  // Position p sees key k when k <= p and, with a window, p < k + window.
  t.first = larger(task.first_position, begin);
  t.end = last + 1;
  t.full_first = larger(task.first_position, begin + kKeyTile - 1);
  t.full_end = last + 1;
  if (window > 0) {
    t.end = smaller(t.end, begin + kKeyTile - 1 + window);
    t.full_end = smaller(t.full_end, begin + window);
  }
  t.full_end = larger(t.full_end, t.full_first);
  t.low = larger(lowest_key(task.variant, t.first) - begin, 0);
  t.high = smaller(t.end - begin, kKeyTile);
  t.first_group = t.low / kKeyGroup;
  t.end_group = (t.high + kKeyGroup - 1) / kKeyGroup;
  return t;
}

// Scores of one row become soft-capped, biased and masked; returns their maximum.
template <typename Format>
[[gnu::always_inline]] inline float prepare_scores(const AttentionTask& task, const TileView& tile,
                                                   int32_t position, int32_t head, float* scores) {
  const AttentionVariant& variant = task.variant;
  const bool is_full = position >= tile.full_first && position < tile.full_end;
  const bool is_plain =
      !Format::kScaled && variant.soft_cap <= 0.0f && variant.alibi_slopes == nullptr;
  const int begin = tile.first_group * kKeyGroup;
  const int end = tile.end_group * kKeyGroup;
  Vec best = splat(kMinusInfinity);
  if (is_plain && is_full) {
    for (int i = begin; i < end; i += kLanes) best = max(best, load(scores + i));
    return horizontal_max(best);
  }
  const Vec low = splat(static_cast<float>(lowest_key(variant, position) - tile.begin));
  const Vec high = splat(static_cast<float>(position + 1 - tile.begin));
  for (int i = begin; i < end; i += kLanes) {
    const Vec lane = iota() + splat(static_cast<float>(i));
    Vec s = load(scores + i);
    if constexpr (Format::kScaled) {
      s = s * load(tile.key_scales[i / kKeyGroup] + i % kKeyGroup);
    }
    if (variant.soft_cap > 0.0f) {
      const Vec cap = splat(variant.soft_cap);
      s = cap * tanh(s / cap);
    }
    if (variant.alibi_slopes != nullptr) {
      const Vec distance = lane + splat(static_cast<float>(tile.begin - position));
      s = fma(splat(variant.alibi_slopes[head]), distance, s);
    }
    s = select(greater_equal(lane, low) & less(lane, high), s, splat(kMinusInfinity));
    store(scores + i, s);
    best = max(best, s);
  }
  return horizontal_max(best);
}

// Scores become weights exp(score - maximum); the running sum takes them.
template <typename Format>
[[gnu::always_inline]] inline void weights_of_row(const TileView& tile, float maximum, float decay,
                                                  float* scores, float* sum) {
  const Vec m = splat(maximum);
  Vec added = zero();
  for (int i = tile.first_group * kKeyGroup; i < tile.end_group * kKeyGroup; i += kLanes) {
    Vec p = exp(load(scores + i) - m);
    added = added + p;
    if constexpr (Format::kScaled) {
      p = p * load(tile.value_scales[i / kKeyGroup] + i % kKeyGroup);
    }
    store(scores + i, p);
  }
  store(sum, fma(load(sum), splat(decay), added));
}

template <typename Format>
void softmax_tile(const AttentionTask& task, const TileView& tile, Fold& f) {
  const int32_t heads = task.num_heads;
  const int32_t first_row = (tile.first - task.first_position) * heads;
  const int32_t end_row = (tile.end - task.first_position) * heads;
  float fresh[kMaxQueryRows];
  int32_t row = first_row;
  for (int32_t position = tile.first; position < tile.end; ++position) {
    for (int32_t h = 0; h < heads; ++h, ++row) {
      fresh[row] = prepare_scores<Format>(task, tile, position, task.first_head + h,
                                          f.scores + row * kKeyTile);
    }
  }
  for (int32_t r = first_row; r < end_row; r += kLanes) {
    const int lanes = smaller(end_row - r, kLanes);
    const bool whole = lanes == kLanes;
    const Vec old = whole ? load(f.maxima + r) : load_first(f.maxima + r, lanes);
    const Vec m = max(old, whole ? load(fresh + r) : load_first(fresh + r, lanes));
    const Vec decay = exp(old - m);
    if (whole) {
      store(f.maxima + r, m);
      store(f.decay + r, decay);
    } else {
      store_first(f.maxima + r, m, lanes);
      store_first(f.decay + r, decay, lanes);
    }
  }
  for (int32_t r = first_row; r < end_row; ++r) {
    weights_of_row<Format>(tile, f.maxima[r], f.decay[r], f.scores + r * kKeyTile, f.sums + r * 16);
  }
}

// Folds the values of the tile into the rows; `Stored` is how they lie: pages or a widened tile.
template <typename Stored>
void weigh_positions(const AttentionTask& task, const TileView& tile, ValueTile<Stored> values,
                     Fold& f) {
  const int32_t heads = task.num_heads;
  const auto weigh = [&](int32_t first, int32_t end, int32_t low, int32_t high) {
    if (first >= end) return;
    const int64_t r = static_cast<int64_t>(first - task.first_position) * heads;
    values.begin = low;
    values.end = high;
    weigh_tile<Stored>(values, (end - first) * heads, f.head_dim, f.scores + r * kKeyTile,
                       f.decay + r, f.values + r * f.stride, f.stride);
  };
  // Rows that see a part of the tile go position by position: what they do not see is not touched.
  for (int32_t p = tile.first; p < tile.end; ++p) {
    if (p >= tile.full_first && p < tile.full_end) {
      weigh(tile.full_first, tile.full_end, 0, kKeyTile);
      p = tile.full_end - 1;
      continue;
    }
    weigh(p, p + 1, larger(lowest_key(task.variant, p) - tile.begin, 0),
          smaller(p + 1 - tile.begin, kKeyTile));
  }
}

// Where one group of keys and values lies.
template <typename Format>
struct StoredGroup {
  const typename Format::Element* keys;
  const typename Format::Element* values;
  const float* key_scales;
  const float* value_scales;
};
template <typename Format>
[[gnu::always_inline]] inline StoredGroup<Format> stored_group(const AttentionTask& task,
                                                               int32_t token) {
  using Element = typename Format::Element;
  const KvLayerView& cache = task.cache;
  const int32_t offset = token % cache.block_tokens;
  const int64_t at = head_offset(cache, task.blocks[token / cache.block_tokens], task.kv_head);
  const int64_t skip = static_cast<int64_t>(offset) * cache.head_dim;
  StoredGroup<Format> group{reinterpret_cast<const Element*>(cache.keys + at) + skip,
                            reinterpret_cast<const Element*>(cache.values + at) + skip, nullptr,
                            nullptr};
  if constexpr (Format::kScaled) {
    const int64_t scales = at + scales_offset(cache) + offset * int64_t{4};
    group.key_scales = reinterpret_cast<const float*>(cache.keys + scales);
    group.value_scales = reinterpret_cast<const float*>(cache.values + scales);
  }
  return group;
}

// Widens the tile's keys and values, asking for the next tile's lines on the way.
template <typename Format>
[[gnu::always_inline]] inline void widen_tile(const TileView& tile, const KeyTile<Format>& keys,
                                              const ValueTile<Format>& values, const Fold& f) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(typename Format::Element));
  const int64_t d = f.head_dim;
  for (int32_t g = tile.first_group; g < tile.end_group; ++g) {
    float* wide = f.key_tile + g * kKeyGroup * f.stride;
    for (int64_t i = 0; i < d * kKeyGroup; i += kLine) {
      prefetch(keys.ahead[g], i);
      for (int k = 0; k < kLine; k += kLanes) {
        store(wide + i + k, Format::widen(keys.keys[g] + i + k));
      }
    }
  }
  for (int32_t j = tile.low; j < tile.high; ++j) {
    const auto* from = values.values[j / kKeyGroup] + j % kKeyGroup * d;
    const auto* ahead = values.ahead[j / kKeyGroup] + j % kKeyGroup * d;
    float* to = f.value_tile + j * f.stride;
    int64_t i = 0;
    for (; i + kLanes <= d; i += kLanes) store(to + i, Format::widen(from + i));
    if (i < d) store(to + i, widen_first<Format>(from + i, static_cast<int>(d - i)));
    for (i = 0; i < d; i += kLine) __builtin_prefetch(ahead + i);
  }
}

template <typename Format>
void fold_tile(const AttentionTask& task, int32_t tile_begin, int32_t end, bool is_shared,
               Fold& f) {
  TileView tile = view_tile(task, tile_begin);
  if (tile.first >= tile.end) return;
  const int64_t d = f.head_dim;
  KeyTile<Format> keys{};
  ValueTile<Format> values{};
  values.stride = d;
  for (int32_t g = tile.first_group; g < tile.end_group; ++g) {
    const int32_t token = tile_begin + g * kKeyGroup;
    const StoredGroup<Format> group = stored_group<Format>(task, token);
    keys.keys[g] = group.keys;
    values.values[g] = group.values;
    tile.key_scales[g] = group.key_scales;
    tile.value_scales[g] = group.value_scales;
    const StoredGroup<Format> next =
        token + kKeyTile < end ? stored_group<Format>(task, token + kKeyTile) : group;
    keys.ahead[g] = next.keys;
    values.ahead[g] = next.values;
  }
  const int32_t heads = task.num_heads;
  const int64_t row = static_cast<int64_t>(tile.first - task.first_position) * heads;
  const int rows = (tile.end - tile.first) * heads;
  const float* q = f.q + row * f.stride;
  float* scores = f.scores + row * kKeyTile;
  if constexpr (kReadsPages<Format>) {
    if (!is_shared) {
      score_tile<Format>(q, f.stride, rows, keys, tile.first_group, tile.end_group, d, scores);
      softmax_tile<Format>(task, tile, f);
      weigh_positions<Format>(task, tile, values, f);
      return;
    }
  }
  widen_tile<Format>(tile, keys, values, f);
  KeyTile<FormatF32> wide_keys{};
  ValueTile<FormatF32> wide_values{};
  wide_values.stride = f.stride;
  for (int32_t g = 0; g < kGroupsPerTile; ++g) {
    wide_keys.keys[g] = wide_keys.ahead[g] = f.key_tile + g * kKeyGroup * f.stride;
    wide_values.values[g] = wide_values.ahead[g] = f.value_tile + g * kKeyGroup * f.stride;
  }
  score_tile<FormatF32>(q, f.stride, rows, wide_keys, tile.first_group, tile.end_group, d, scores);
  softmax_tile<Format>(task, tile, f);
  weigh_positions<FormatF32>(task, tile, wide_values, f);
}

// Folds chunk [begin, end) into fresh states.
template <typename Format>
void fold_chunk(const AttentionTask& task, int32_t begin, int32_t end, Fold& f) {
  const int rows = task.num_positions * task.num_heads;
  for (int r = 0; r < rows; ++r) {
    f.maxima[r] = kMinusInfinity;
    for (int64_t i = 0; i < 16; i += kLanes) store(f.sums + r * 16 + i, zero());
    for (int64_t i = 0; i < f.stride; i += kLanes) store(f.values + r * f.stride + i, zero());
  }
  const int32_t last = task.first_position + task.num_positions - 1;
  const int32_t lowest = lowest_key(task.variant, task.first_position);
  const int32_t first_tile = larger(begin, lowest) / kKeyTile * kKeyTile;
  const int32_t stop = smaller(end, last + 1);
  // A widened tile pays for itself from about three row blocks on; the rarer formats always widen.
  const bool is_shared = rows > 12 || !kReadsPages<Format>;
  for (int32_t t = first_tile; t < stop; t += kKeyTile) {
    fold_tile<Format>(task, t, stop, is_shared, f);
  }
}

void load_queries(const AttentionTask& task, Fold& f) {
  const Vec scale = splat(task.variant.scale);
  for (int32_t p = 0; p < task.num_positions; ++p) {
    for (int32_t h = 0; h < task.num_heads; ++h) {
      const float* from = task.queries + p * task.query_stride + (task.first_head + h) * f.head_dim;
      float* to = f.q + (static_cast<int64_t>(p) * task.num_heads + h) * f.stride;
      for (int64_t i = 0; i < f.head_dim; i += 8) {
        for (int64_t k = i; k < i + 8; k += kLanes < 8 ? kLanes : 8) {
          if constexpr (kLanes <= 8) {
            store(to + k, load(from + k) * scale);
          } else {
            store_first(to + k, load_first(from + k, 8) * scale, 8);
          }
        }
      }
    }
  }
}

template <typename Format>
void attend_pages(const AttentionTask& task, float* scratch) {
  Fold f = make_fold(task, scratch);
  load_queries(task, f);
  const int32_t heads = task.num_heads;
  const int rows = task.num_positions * heads;
  if (task.state != nullptr) {
    fold_chunk<Format>(task, task.chunk_begin, task.chunk_begin + task.chunk_tokens, f);
    for (int r = 0; r < rows; ++r) {
      float* state = task.state + r * (f.stride + 16);
      for (int64_t i = 0; i < f.stride; i += kLanes) {
        store(state + i, load(f.values + r * f.stride + i));
      }
      state[f.stride] = f.maxima[r];
      state[f.stride + 1] = horizontal_sum(load(f.sums + r * 16));
    }
    return;
  }
  const int32_t last = task.first_position + task.num_positions - 1;
  const int32_t lowest = lowest_key(task.variant, task.first_position);
  const int32_t first_chunk = lowest / task.chunk_tokens * task.chunk_tokens;
  for (int32_t c = first_chunk; c <= last; c += task.chunk_tokens) {
    fold_chunk<Format>(task, c, c + task.chunk_tokens, f);
    for (int r = 0; r < rows; ++r) {
      const int32_t position = task.first_position + r / heads;
      const int32_t low = lowest_key(task.variant, position);
      if (position < c || low >= c + task.chunk_tokens) continue;  // sees nothing of this chunk
      float* total = f.total + r * f.stride;
      const float* part = f.values + r * f.stride;
      const float part_sum = horizontal_sum(load(f.sums + r * 16));
      if (low >= c) {  // the row's first chunk
        for (int64_t i = 0; i < f.stride; i += kLanes) store(total + i, load(part + i));
        f.total_max[r] = f.maxima[r];
        f.total_sum[r] = part_sum;
      } else {
        merge_state(total, f.total_max + r, f.total_sum + r, part, f.maxima[r], part_sum, f.stride);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    const int32_t head = task.first_head + r % heads;
    finish_row(f.total + r * f.stride, f.total_max[r], f.total_sum[r],
               task.variant.sinks != nullptr ? task.variant.sinks + head : nullptr, f.head_dim,
               task.out + r / heads * task.out_stride + head * f.head_dim);
  }
}

void attend(const AttentionTask& task, float* scratch) {
  switch (task.cache.format) {
    case KvFormat::kF32:
      return attend_pages<FormatF32>(task, scratch);
    case KvFormat::kF16:
      return attend_pages<FormatF16>(task, scratch);
    case KvFormat::kBF16:
      return attend_pages<FormatBF16>(task, scratch);
    case KvFormat::kFp8:
      return attend_pages<FormatFp8>(task, scratch);
    case KvFormat::kInt8:
      return attend_pages<FormatInt8>(task, scratch);
  }
}

void merge(const AttentionMergeTask& task) {
  const int64_t stride = (task.head_dim + int64_t{15}) / 16 * 16;
  const int64_t state_floats = stride + 16;
  for (int32_t h = 0; h < task.num_heads; ++h) {
    float* total = task.states + h * state_floats;
    for (int32_t c = 1; c < task.num_chunks; ++c) {
      const float* part =
          task.states + (static_cast<int64_t>(c) * task.num_heads + h) * state_floats;
      merge_state(total, total + stride, total + stride + 1, part, part[stride], part[stride + 1],
                  stride);
    }
    finish_row(total, total[stride], total[stride + 1],
               task.sinks != nullptr ? task.sinks + h : nullptr, task.head_dim,
               task.out + h * task.head_dim);
  }
}

void fill_attention_table(AttentionKernels& kernels) {
  kernels.attend = attend;
  kernels.merge = merge;
  kernels.append = append;
}
