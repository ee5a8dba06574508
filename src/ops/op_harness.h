// What op tests and benchmarks share: a context on a chosen ISA level and random tensors. Test code
// only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "core/tensor.h"
#include "kernels/cpu/kernel_table.h"
#include "memory/step_arena.h"
#include "ops/step_context.h"

namespace pelton::ops {

inline constexpr IsaLevel kAllLevels[] = {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512,
                                          IsaLevel::kAmx};
inline bool has_level(IsaLevel level) { return level <= cpu_features().best_level(); }

// Threads, scratch and a context over them.
class OpHarness {
 public:
  explicit OpHarness(IsaLevel level, int threads = 1, size_t scratch_bytes = size_t{64} << 20)
      : pool_(threads),
        storage_(std::make_unique_for_overwrite<std::byte[]>(scratch_bytes + 64)),
        arena_(aligned(storage_.get(), scratch_bytes)),
        context_{arena_, pool_, kernels::kernels_for(level)} {}

  StepContext& context() {
    arena_.reset();
    return context_;
  }

 private:
  static std::span<std::byte> aligned(std::byte* p, size_t bytes) {
    const size_t skew = reinterpret_cast<uintptr_t>(p) % 64;
    return {p + (skew == 0 ? 0 : 64 - skew), bytes};
  }

  ThreadPool pool_;
  std::unique_ptr<std::byte[]> storage_;
  memory::StepArena arena_;
  StepContext context_;
};

// Owned f32 numbers seen as a matrix.
struct Matrix {
  std::vector<float> values;
  int64_t rows = 0;
  int64_t columns = 0;

  Matrix(int64_t r, int64_t c) : values(static_cast<size_t>(r * c)), rows(r), columns(c) {}
  static Matrix normal(int64_t r, int64_t c, uint64_t seed, float scale = 1.0f) {
    Matrix m(r, c);
    Random random(seed);
    for (float& v : m.values) v = scale * random.normal();
    return m;
  }
  // What a tensor of this type holds of the values.
  void round_to(DType type) {
    if (type != DType::kBF16) return;
    for (float& v : values) v = bf16_to_f32(f32_to_bf16(v));
  }
  Tensor tensor() { return Tensor::rows(values.data(), DType::kF32, rows, columns); }
  std::span<float> row(int64_t r) {
    return {values.data() + r * columns, static_cast<size_t>(columns)};
  }
};

}  // namespace pelton::ops
