// safetensors, one file or an indexed set of shards (docs/formats/safetensors.md).
#pragma once

#include "weights/weight_source.h"

namespace pelton::weights {

class SafetensorsSet final : public WeightSource {
 public:
  // `path`: a folder with model.safetensors or model.safetensors.index.json and its shards, or one
  // .safetensors file.
  static Result<std::unique_ptr<SafetensorsSet>> open(const std::filesystem::path& path);
  // One file's bytes in memory, for fuzzing and tests.
  static Result<std::unique_ptr<SafetensorsSet>> parse(std::span<const std::byte> bytes,
                                                       std::string path);
  ~SafetensorsSet() override;

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override;
  const std::string& path() const override;
  uint64_t mapped_bytes() const override;

 private:
  struct Impl;
  explicit SafetensorsSet(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::weights
