// Named tensors and metadata from untrusted bytes. Readers prove every count, shape, offset and
// type before they take memory; after open() succeeds, every tensor's range lies inside its mapped
// file and overlaps no other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "core/dtype.h"

namespace pelton::weights {

struct TensorInfo {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> shape;  // outermost first, [out_features, in_features] as in Hugging Face
  std::span<const std::byte> data;  // inside `file`
  const MappedFile* file = nullptr;

  int64_t elements() const;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Null when absent.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual std::span<const TensorInfo> tensors() const = 0;
  // The file or folder, for messages.
  virtual const std::string& path() const = 0;
  // Bytes of all mapped files.
  virtual uint64_t mapped_bytes() const = 0;
};

}  // namespace pelton::weights
