// Tensors that no file holds: names and shapes as given, values random, the same for the same seed
// whatever was asked for before. Address space is reserved at once, memory is taken when a tensor
// is prepared: a plan costs nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weights/tensor_table.h"
#include "weights/weight_source.h"

namespace pelton::weights {

// Values of a tensor: uniform in centre +- spread.
struct SyntheticTensor {
  std::string name;
  std::vector<int64_t> shape;
  float centre = 0.0f;
  float spread = 0.0f;
};

class SyntheticWeights final : public WeightSource {
 public:
  // All BF16. `name` stands for the path in messages. kResourceExhausted when the address space
  // cannot be reserved.
  static Result<std::unique_ptr<SyntheticWeights>> create(
      const std::string& name, const std::vector<SyntheticTensor>& tensors, uint64_t seed);
  ~SyntheticWeights() override;
  SyntheticWeights(const SyntheticWeights&) = delete;
  SyntheticWeights& operator=(const SyntheticWeights&) = delete;

  const TensorInfo* find(std::string_view name) const override { return table_.find(name); }
  std::span<const TensorInfo> tensors() const override { return table_.tensors(); }
  const std::string& path() const override { return name_; }
  uint64_t mapped_bytes() const override { return 0; }

  std::optional<RandomTensor> random(const TensorInfo& tensor) const override;
  void prepare(const TensorInfo& tensor, ThreadPool& pool) const override;
  void release(const TensorInfo& tensor) const override;

 private:
  SyntheticWeights() = default;
  size_t index_of(const TensorInfo& tensor) const;
  uint64_t key_of(const TensorInfo& tensor) const;

  std::string name_;
  uint64_t seed_ = 0;
  std::byte* reserved_ = nullptr;
  size_t size_ = 0;
  TensorTable table_;
  std::vector<SyntheticTensor> recipes_;  // in the table's order
};

}  // namespace pelton::weights
