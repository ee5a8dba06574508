// Row kernels over Vec; see row_kernels.h. Included inside a level's unnamed namespace, after its
// vec.h and math.inl.

// Calls body(offset, lanes) over [0, n): whole vectors first, then the rest with lanes < kLanes.
template <typename Body>
[[gnu::always_inline]] inline void over_row(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}
[[gnu::always_inline]] inline Vec load_some(const float* p, int lanes) {
  return lanes == kLanes ? load(p) : load_first(p, lanes);
}
[[gnu::always_inline]] inline void store_some(float* p, Vec a, int lanes) {
  if (lanes == kLanes) {
    store(p, a);
  } else {
    store_first(p, a, lanes);
  }
}

// Sum over the row of f(vector); f maps 0 to 0 (lanes past the end read as 0).
template <typename F>
[[gnu::always_inline]] inline float row_sum(const float* x, int64_t n, F f) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) sums[k] = f(sums[k], load(x + i + k * kLanes), kLanes);
  }
  for (; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
    sums[0] = f(sums[0], load_some(x + i, lanes), lanes);
  }
  return horizontal_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

[[gnu::always_inline]] inline float inverse_rms(const float* x, int64_t n, float eps) {
  const float squares = row_sum(x, n, [](Vec sum, Vec v, int /*lanes*/) { return fma(v, v, sum); });
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const Vec scale = splat(inverse_rms(x, n, eps));
  over_row(n, [&](int64_t i, int lanes) {
    store_some(out + i, load_some(x + i, lanes) * scale * load_some(weight + i, lanes), lanes);
  });
}

void rms_norm_add(const float* x, const float* weight, int64_t n, float eps, float* residual) {
  const Vec scale = splat(inverse_rms(x, n, eps));
  over_row(n, [&](int64_t i, int lanes) {
    const Vec y = load_some(x + i, lanes) * scale * load_some(weight + i, lanes);
    store_some(residual + i, load_some(residual + i, lanes) + y, lanes);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, int64_t n, float eps,
                float* out) {
  const auto count = static_cast<float>(n);
  const float mean = row_sum(x, n, [](Vec sum, Vec v, int /*lanes*/) { return sum + v; }) / count;
  const Vec center = splat(mean);
  const float squares = row_sum(x, n, [&](Vec sum, Vec v, int lanes) {
    Vec d = v - center;
    if (lanes < kLanes) d = select(less(iota(), splat(static_cast<float>(lanes))), d, zero());
    return fma(d, d, sum);
  });
  const Vec scale = splat(1.0f / __builtin_sqrtf(squares / count + eps));
  over_row(n, [&](int64_t i, int lanes) {
    const Vec shift = bias != nullptr ? load_some(bias + i, lanes) : zero();
    const Vec y = (load_some(x + i, lanes) - center) * scale;
    store_some(out + i, fma(y, load_some(weight + i, lanes), shift), lanes);
  });
}

void rope_halves(const RopeRow& row) {
  for (int64_t h = 0; h < row.heads; ++h) {
    float* first = row.x + h * row.head_dim;
    float* second = first + row.rotary_half;
    over_row(row.rotary_half, [&](int64_t i, int lanes) {
      const Vec c = load_some(row.cosines + i, lanes);
      const Vec s = load_some(row.sines + i, lanes);
      const Vec a = load_some(first + i, lanes);
      const Vec b = load_some(second + i, lanes);
      store_some(first + i, fnma(b, s, a * c), lanes);
      store_some(second + i, fma(a, s, b * c), lanes);
    });
  }
}

void rope_adjacent(const RopeRow& row) {
  constexpr int64_t kPairs = kLanes / 2;
  for (int64_t h = 0; h < row.heads; ++h) {
    float* x = row.x + h * row.head_dim;
    int64_t i = 0;
    for (; i + kPairs <= row.rotary_half; i += kPairs) {
      store(x + 2 * i, rotate_adjacent(load(x + 2 * i), row.cosines + i, row.sines + i));
    }
    const int64_t rest = row.rotary_half - i;
    if (rest > 0) {
      float cosines[kPairs] = {};
      float sines[kPairs] = {};
      for (int64_t k = 0; k < rest; ++k) {
        cosines[k] = row.cosines[i + k];
        sines[k] = row.sines[i + k];
      }
      const int lanes = static_cast<int>(2 * rest);
      store_first(x + 2 * i, rotate_adjacent(load_first(x + 2 * i, lanes), cosines, sines), lanes);
    }
  }
}

struct Silu {
  [[gnu::always_inline]] static Vec apply(Vec x) { return x * sigmoid(x); }
};
struct Gelu {
  [[gnu::always_inline]] static Vec apply(Vec x) {
    const Vec half = splat(0.5f) * x;
    return fma(half, erf(x * splat(0.707106781f)), half);
  }
};
// 0.5 x (1 + tanh(u)) is x sigmoid(2u), which loses nothing to cancellation.
struct GeluTanh {
  [[gnu::always_inline]] static Vec apply(Vec x) {
    const Vec cubed = x * x * x;
    const Vec u = splat(1.59576912f) * fma(splat(0.044715f), cubed, x);
    return x * sigmoid(u);
  }
};
struct Relu {
  [[gnu::always_inline]] static Vec apply(Vec x) { return max(zero(), x); }
};

template <typename F>
void activate(const float* gate, const float* up, int64_t n, float* out) {
  if (up == nullptr) {
    over_row(n, [&](int64_t i, int lanes) {
      store_some(out + i, F::apply(load_some(gate + i, lanes)), lanes);
    });
    return;
  }
  over_row(n, [&](int64_t i, int lanes) {
    store_some(out + i, F::apply(load_some(gate + i, lanes)) * load_some(up + i, lanes), lanes);
  });
}

void soft_cap(float* x, int64_t n, float cap) {
  const Vec c = splat(cap);
  over_row(n, [&](int64_t i, int lanes) {
    store_some(x + i, c * tanh(load_some(x + i, lanes) / c), lanes);
  });
}

void add(float* x, const float* y, int64_t n) {
  over_row(n, [&](int64_t i, int lanes) {
    store_some(x + i, load_some(x + i, lanes) + load_some(y + i, lanes), lanes);
  });
}

float row_max(const float* x, int64_t n) {
  const Vec lowest = splat(-__builtin_inff());
  Vec best[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  // max(a, b) is b where a is NaN: a NaN never enters.
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) best[k] = max(load(x + i + k * kLanes), best[k]);
  }
  float m = horizontal_max(max(max(best[0], best[1]), max(best[2], best[3])));
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

int64_t find_at_least(const float* x, int64_t n, float bound) {
  const Vec b = splat(bound);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const uint32_t hits = bits(greater_equal(load(x + i), b));
    if (hits != 0) return i + __builtin_ctz(hits);
  }
  for (; i < n; ++i) {
    if (x[i] >= bound) return i;
  }
  return n;
}

double sum_exp(const float* x, int64_t n, float max) {
  const Vec m = splat(max);
  DoubleSum sum = double_zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) accumulate(sum, exp(load(x + i) - m));
  if (i < n) {
    const int lanes = static_cast<int>(n - i);
    const Vec e = exp(load_first(x + i, lanes) - m);
    accumulate(sum, select(less(iota(), splat(static_cast<float>(lanes))), e, zero()));
  }
  return total(sum);
}

void collect_above(const float* x, int64_t n, float bound, int32_t* ids, CollectState* state) {
  constexpr int32_t kMargin = 16;  // at least the lanes of any level
  const Vec b = splat(bound);
  int64_t i = state->next;
  int32_t count = state->count;
  for (; i + kLanes <= n && state->capacity - count >= kMargin; i += kLanes) {
    uint32_t hits = bits(greater_equal(load(x + i), b));
    for (; hits != 0; hits &= hits - 1)
      ids[count++] = static_cast<int32_t>(i + __builtin_ctz(hits));
  }
  if (i + kLanes > n) {
    for (; i < n && count < state->capacity; ++i) {
      if (x[i] >= bound) ids[count++] = static_cast<int32_t>(i);
    }
  }
  state->next = i;
  state->count = count;
}

void fill_row_table(RowKernels& kernels) {
  kernels.rms_norm = rms_norm;
  kernels.rms_norm_add = rms_norm_add;
  kernels.layer_norm = layer_norm;
  kernels.rope_halves = rope_halves;
  kernels.rope_adjacent = rope_adjacent;
  kernels.activate[0] = activate<Silu>;
  kernels.activate[1] = activate<Gelu>;
  kernels.activate[2] = activate<GeluTanh>;
  kernels.activate[3] = activate<Relu>;
  kernels.soft_cap = soft_cap;
  kernels.add = add;
  kernels.max = row_max;
  kernels.find_at_least = find_at_least;
  kernels.sum_exp = sum_exp;
  kernels.collect_above = collect_above;
}
