#include "kernels/cpu/avx2/vec.h"
#include "ops/attention_unfused.h"

namespace pelton::kernels::avx2 {
namespace {

#include "kernels/cpu/shared/math.inl"

constexpr int kRows = 6;
constexpr int kBlock = 48;  // rows of one item: a block's scores and values stay in the caches

// scores[r][0..15] = q[r] . keys of one group.
void score_block(const float* q, int64_t q_stride, const float* keys, int64_t head_dim, Vec scale,
                 float* scores, int64_t stride) {
  Vec sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    const Vec a = load(keys + d * 16);
    const Vec b = load(keys + d * 16 + 8);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = broadcast(q + r * q_stride + d);
      sums[r][0] = fma(x, a, sums[r][0]);
      sums[r][1] = fma(x, b, sums[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(scores + r * stride, sums[r][0] * scale);
    store(scores + r * stride + 8, sums[r][1] * scale);
  }
}

// out[r][0..15] = weights[r][0..keys) . values.
void value_block(const float* weights, int64_t stride, const float* values, int64_t head_dim,
                 int64_t keys, float* out, int64_t out_stride) {
  Vec sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = zero();
  for (int64_t j = 0; j < keys; ++j) {
    const Vec a = load(values + j * head_dim);
    const Vec b = load(values + j * head_dim + 8);
    for (int r = 0; r < kRows; ++r) {
      const Vec p = broadcast(weights + r * stride + j);
      sums[r][0] = fma(p, a, sums[r][0]);
      sums[r][1] = fma(p, b, sums[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(out + r * out_stride, sums[r][0]);
    store(out + r * out_stride + 8, sums[r][1]);
  }
}

// Softmax of scores[0..count); the rest up to `padded` becomes 0.
void softmax_row(float* scores, int64_t count, int64_t padded) {
  for (int64_t i = count; i < padded; ++i) scores[i] = -__builtin_inff();
  Vec best = load(scores);
  for (int64_t i = kLanes; i < padded; i += kLanes) best = max(best, load(scores + i));
  const Vec m = splat(horizontal_max(best));
  Vec sum = zero();
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Vec p = exp(load(scores + i) - m);
    sum = sum + p;
    store(scores + i, p);
  }
  const Vec scale = splat(1.0f / horizontal_sum(sum));
  for (int64_t i = 0; i < padded; i += kLanes) store(scores + i, load(scores + i) * scale);
}

}  // namespace
}  // namespace pelton::kernels::avx2

namespace pelton::ops {

void unfused_attention_avx2(const UnfusedAttention& args, ThreadPool& pool) {
  namespace isa = kernels::avx2;
  const int64_t n = args.tokens;
  const int64_t d = args.head_dim;
  const int64_t group = args.heads / args.kv_heads;
  const int64_t blocks = n / isa::kBlock;
  const int64_t q_stride = args.heads * d;
  const auto keys_of = [](int64_t row) { return (row + 16) / 16 * 16; };
  pool.parallel_for(args.heads * blocks, [&](int64_t item, int /*thread*/) {
    const int64_t head = item / blocks;
    const int64_t first = item % blocks * isa::kBlock;
    const float* keys = args.keys + head / group * n * d;
    for (int64_t g = 0; g < keys_of(first + isa::kBlock - 1); g += 16) {
      for (int64_t r = first; r < first + isa::kBlock; r += isa::kRows) {
        if (g > r + isa::kRows - 1) continue;
        isa::score_block(args.queries + r * q_stride + head * d, q_stride, keys + g * d, d,
                         isa::splat(args.scale), args.scores + (head * n + r) * n + g, n);
      }
    }
  });
  pool.parallel_for(args.heads * blocks, [&](int64_t item, int /*thread*/) {
    const int64_t head = item / blocks;
    const int64_t first = item % blocks * isa::kBlock;
    for (int64_t r = first; r < first + isa::kBlock; ++r) {
      // Rows of one product block share its key range.
      const int64_t last = r / isa::kRows * isa::kRows + isa::kRows - 1;
      isa::softmax_row(args.scores + (head * n + r) * n, r + 1, keys_of(last));
    }
  });
  pool.parallel_for(args.heads * blocks, [&](int64_t item, int /*thread*/) {
    const int64_t head = item / blocks;
    const int64_t first = item % blocks * isa::kBlock;
    const float* values = args.values + head / group * n * d;
    for (int64_t c = 0; c < d; c += 16) {
      for (int64_t r = first; r < first + isa::kBlock; r += isa::kRows) {
        isa::value_block(args.scores + (head * n + r) * n, n, values + c, d, r + isa::kRows,
                         args.out + r * q_stride + head * d + c, q_stride);
      }
    }
  });
}

}  // namespace pelton::ops
