// Register-blocked products of the attention fold. Included inside a level's unnamed namespace,
// after attention_pages.inl.
//
// Every score is one multiply-add chain over the head's dimensions, and every output element one
// chain over the keys in order. Blocking rows and columns differently therefore never changes a
// bit, and the shapes below are free choices for speed.

constexpr int kVecsPerGroup = kKeyGroup / kLanes;
// Accumulators that fit the registers beside operands.
constexpr int kAccumulators = kLanes == 16 ? 24 : 12;
constexpr int kMaxScoreRows = kAccumulators / kVecsPerGroup < 6 ? kAccumulators / kVecsPerGroup : 6;
// Up to so many rows the memory is slower than the products, and worth asking ahead.
constexpr int kFewRows = 4;
constexpr int kMaxValueRows = kLanes >= 8 ? 6 : 3;

template <int kValue>
struct Height {
  static constexpr int value = kValue;
};
// Calls f with the Height of `height`, 1 <= height <= kMost <= 6.
template <int kMost, typename F>
[[gnu::always_inline]] inline void with_height(int height, F f) {
  if (height == kMost) return f(Height<kMost>{});
  if constexpr (kMost > 1) with_height<kMost - 1>(height, f);
}

// Asks for base[index]. A hint only, so base may be null or past its end: no such pointer is
// formed.
template <typename T>
[[gnu::always_inline]] inline void prefetch(const T* base, int64_t index) {
  const auto address =
      reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(index) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
}

// Keys of a tile's groups, and of the same groups of the tile that follows (or of this one again),
// whose lines are asked for while these are used: a page's runs are too short for the hardware to
// see them coming.
template <typename Format>
struct KeyTile {
  const typename Format::Element* keys[kKeyTile / kKeyGroup];
  const typename Format::Element* ahead[kKeyTile / kKeyGroup];
};

// scores[r][g * 16 ..] = query row r . keys of group g, for R rows and the G groups from `first`
// on.
template <typename Format, int R, int G>
[[gnu::always_inline]] inline void score_rows(const float* q, int64_t q_stride,
                                              const KeyTile<Format>& tile, int first,
                                              int64_t head_dim, float* scores) {
  constexpr int kVecs = G * kVecsPerGroup;
  const typename Format::Element* keys[G];
  for (int g = 0; g < G; ++g) keys[g] = tile.keys[first + g];
  Vec sums[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) sums[r][v] = zero();
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    if constexpr (R <= kFewRows) {
      for (int g = 0; g < G; ++g) prefetch(tile.ahead[first + g], d * kKeyGroup);
    }
    Vec k[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      k[v] = Format::widen(keys[v / kVecsPerGroup] + d * kKeyGroup + v % kVecsPerGroup * kLanes);
    }
    for (int r = 0; r < R; ++r) {
      const Vec x = broadcast(q + r * q_stride + d);
      for (int v = 0; v < kVecs; ++v) sums[r][v] = fma(x, k[v], sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      store(scores + r * kKeyTile + first * kKeyGroup + v * kLanes, sums[r][v]);
    }
  }
}

// The same for any number of rows, cut into blocks of nearly equal height, and groups [first, end).
template <typename Format>
void score_tile(const float* q, int64_t q_stride, int rows, const KeyTile<Format>& tile, int first,
                int end, int64_t head_dim, float* scores) {
  while (rows > 0) {
    const int blocks = (rows + kMaxScoreRows - 1) / kMaxScoreRows;
    const int height = (rows + blocks - 1) / blocks;
    with_height<kMaxScoreRows>(height, [&](auto h) {
      constexpr int kRows = h.value;
      int g = first;
      if constexpr (2 * kRows * kVecsPerGroup <= kAccumulators) {
        for (; g + 2 <= end; g += 2) {
          score_rows<Format, kRows, 2>(q, q_stride, tile, g, head_dim, scores);
        }
      }
      for (; g < end; ++g) score_rows<Format, kRows, 1>(q, q_stride, tile, g, head_dim, scores);
    });
    q += height * q_stride;
    scores += height * kKeyTile;
    rows -= height;
  }
}

// Keys [begin, end) of a tile and where their values lie: token j of group g at
// values[g] + (j % 16) * stride.
template <typename Format>
struct ValueTile {
  const typename Format::Element* values[kKeyTile / kKeyGroup];
  const typename Format::Element* ahead[kKeyTile / kKeyGroup];  // as in KeyTile
  int64_t stride = 0;
  int begin = 0;
  int end = 0;
};

// accumulator[r][0 .. V vectors) = accumulator * decay[r] + weights[r] . values, for R rows. With
// `kTail`, V is 1 and only `lanes` columns exist.
template <typename Format, int R, int V, bool kTail>
[[gnu::always_inline]] inline void weigh_block(const ValueTile<Format>& tile, int64_t column,
                                               int lanes, const float* weights, const float* decay,
                                               float* accumulator, int64_t acc_stride) {
  Vec sums[R][V];
  for (int r = 0; r < R; ++r) {
    const Vec d = broadcast(decay + r);
    for (int v = 0; v < V; ++v) sums[r][v] = load(accumulator + r * acc_stride + v * kLanes) * d;
  }
  for (int g = 0; g < kKeyTile / kKeyGroup; ++g) {
    const int first = g * kKeyGroup;
    const int begin = tile.begin > first ? tile.begin - first : 0;
    const int end = tile.end - first < kKeyGroup ? tile.end - first : kKeyGroup;
    if (begin >= end) continue;  // the group may have no page
    const auto* row = tile.values[g] + column;
    for (int j = begin; j < end; ++j) {
      const float* p = weights + first + j;
      if constexpr (R <= kFewRows) {
        constexpr int kLine = 64 / static_cast<int>(sizeof(typename Format::Element));
        for (int i = 0; i < V * kLanes; i += kLine) {
          prefetch(tile.ahead[g], column + j * tile.stride + i);
        }
      }
      const auto widened = [&](int v) {
        const auto* at = row + j * tile.stride + v * kLanes;
        return kTail ? widen_first<Format>(at, lanes) : Format::widen(at);
      };
      // The smaller side stays in registers.
      if constexpr (R > V) {
        Vec x[V];
        for (int v = 0; v < V; ++v) x[v] = widened(v);
        for (int r = 0; r < R; ++r) {
          const Vec w = broadcast(p + r * kKeyTile);
          for (int v = 0; v < V; ++v) sums[r][v] = fma(w, x[v], sums[r][v]);
        }
      } else {
        Vec w[R];
        for (int r = 0; r < R; ++r) w[r] = broadcast(p + r * kKeyTile);
        for (int v = 0; v < V; ++v) {
          const Vec x = widened(v);
          for (int r = 0; r < R; ++r) sums[r][v] = fma(w[r], x, sums[r][v]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(accumulator + r * acc_stride + v * kLanes, sums[r][v]);
  }
}

template <typename Format, int R>
void weigh_rows(const ValueTile<Format>& tile, int64_t head_dim, const float* weights,
                const float* decay, float* accumulator, int64_t acc_stride) {
  constexpr int kWide = kAccumulators / R < 8 ? kAccumulators / R : 8;
  int64_t c = 0;
  for (; c + kWide * kLanes <= head_dim; c += kWide * kLanes) {
    weigh_block<Format, R, kWide, false>(tile, c, 0, weights, decay, accumulator + c, acc_stride);
  }
  for (; c + 2 * kLanes <= head_dim; c += 2 * kLanes) {
    weigh_block<Format, R, 2, false>(tile, c, 0, weights, decay, accumulator + c, acc_stride);
  }
  for (; c + kLanes <= head_dim; c += kLanes) {
    weigh_block<Format, R, 1, false>(tile, c, 0, weights, decay, accumulator + c, acc_stride);
  }
  if (c < head_dim) {
    weigh_block<Format, R, 1, true>(tile, c, static_cast<int>(head_dim - c), weights, decay,
                                    accumulator + c, acc_stride);
  }
}

template <typename Format>
void weigh_tile(const ValueTile<Format>& tile, int rows, int64_t head_dim, const float* weights,
                const float* decay, float* accumulator, int64_t acc_stride) {
  while (rows > 0) {
    const int blocks = (rows + kMaxValueRows - 1) / kMaxValueRows;
    const int height = (rows + blocks - 1) / blocks;
    with_height<kMaxValueRows>(height, [&](auto h) {
      weigh_rows<Format, h.value>(tile, head_dim, weights, decay, accumulator, acc_stride);
    });
    weights += height * kKeyTile;
    decay += height;
    accumulator += height * acc_stride;
    rows -= height;
  }
}
