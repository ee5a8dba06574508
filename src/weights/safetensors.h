// safetensors, one file or an indexed set of shards (docs/formats/safetensors.md).
#pragma once

#include <map>

#include "weights/weight_source.h"

namespace pelton::weights {

// A tensor whose dtype Pelton does not compute with (index tables, masks). Its range is proved like
// any other; find() and tensors() leave it out.
struct UnusedTensor {
  std::string name;
  std::string dtype;           // as the file spells it
  std::vector<int64_t> shape;  // outermost first
  uint64_t bytes = 0;
};

class SafetensorsSet final : public WeightSource {
 public:
  // `path`: a folder with model.safetensors or model.safetensors.index.json and its shards, or one
  // .safetensors file. Data that the file does not align to its elements is copied; all other data
  // stays in the mapping.
  static Result<std::unique_ptr<SafetensorsSet>> open(const std::filesystem::path& path);
  // One file's bytes in memory, for fuzzing and tests.
  static Result<std::unique_ptr<SafetensorsSet>> parse(std::span<const std::byte> bytes,
                                                       std::string path);
  ~SafetensorsSet() override;

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override;
  const std::string& path() const override;
  uint64_t mapped_bytes() const override;

  std::span<const UnusedTensor> unused() const;
  // Of the first file.
  const std::map<std::string, std::string, std::less<>>& metadata() const;

 protected:
  std::string unusable_reason(std::string_view name) const override;

 private:
  struct Impl;
  explicit SafetensorsSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::weights
