// Scratch of one step. Used twice with the same calls: counting (no memory, tensors must not be
// touched) gives the plan, carving hands out what was planned. Memory is freed by rewinding to a
// mark, so a forward's peak is that of its widest point, not of the sum of its layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/tensor.h"

namespace pelton::memory {

class StepArena {
 public:
  static constexpr size_t kAlignment = 64;

  // Counts only: pointers it hands out are distinct but must not be read or written.
  static StepArena counting() { return StepArena(nullptr, 0); }
  // Carves from `storage`, which must outlive the arena and be kAlignment-aligned. Exceeding it is
  // a programmer error.
  explicit StepArena(std::span<std::byte> storage) : StepArena(storage.data(), storage.size()) {}

  bool is_counting() const { return base_ == nullptr; }
  void* allocate(size_t bytes);
  template <typename T>
  T* allocate_array(int64_t count) {
    return static_cast<T*>(allocate(static_cast<size_t>(count) * sizeof(T)));
  }
  Tensor rows(DType dtype, int64_t num_rows, int64_t columns) {
    return Tensor::rows(
        allocate(static_cast<size_t>(num_rows * columns) * static_cast<size_t>(dtype_bytes(dtype))),
        dtype, num_rows, columns);
  }

  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  void reset() { used_ = 0; }

  // Gives back everything allocated during its life.
  class Scope {
   public:
    explicit Scope(StepArena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepArena& arena_;
    size_t mark_;
  };

 private:
  StepArena(std::byte* base, size_t capacity) : base_(base), capacity_(capacity) {}
  std::byte* base_;
  size_t capacity_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace pelton::memory
