// Named tensors and metadata from untrusted bytes. Readers prove every count, shape, offset and
// type before they take memory; after open() succeeds, every tensor's range lies inside its mapped
// file and overlaps no other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "core/dtype.h"

namespace pelton::weights {

struct TensorInfo {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  std::vector<int64_t> shape;       // outermost first, [out_features, in_features] as in Hugging
                                    // Face; every dimension >= 1, empty for a scalar
  std::span<const std::byte> data;  // inside `file`; aligned for the elements of a plain format
  // Null when the bytes are in memory that the source owns or was given.
  const MappedFile* file = nullptr;

  int64_t elements() const;
};

// A tensor that no file holds. Element i, rows end to end, is spread *
// signed_unit(counter_bits(key, i / 4), i % 4) (base/splitmix.h), so that it can be made where it
// is used.
struct RandomTensor {
  uint64_t key = 0;
  float spread = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Null when absent, or present in a type that Pelton cannot use.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // In file order.
  virtual std::span<const TensorInfo> tensors() const = 0;
  // The file or folder, for messages.
  virtual const std::string& path() const = 0;
  // Bytes of all mapped files.
  virtual uint64_t mapped_bytes() const = 0;

  // How the tensor is made, where it is one of that kind; it then need not be prepared.
  virtual std::optional<RandomTensor> random(const TensorInfo& /*tensor*/) const {
    return std::nullopt;
  }
  // Called before a tensor's bytes are read, and when they are not needed any more.
  virtual void prepare(const TensorInfo& /*tensor*/, ThreadPool& /*pool*/) const {}
  virtual void release(const TensorInfo& tensor) const {
    if (tensor.file != nullptr) tensor.file->drop_pages(tensor.data);
  }

  // Bytes of the tensor from `begin` on.
  static void copy(const TensorInfo& tensor, size_t begin, std::span<std::byte> out);
  // Byte `begin` of the tensor will be needed soon, and so many after it, even beyond its end.
  static void read_ahead(const TensorInfo& tensor, size_t begin, size_t bytes);

  // find(), or an error that says why there is no such tensor.
  Result<const TensorInfo*> require(std::string_view name) const;

 protected:
  // Why find() hides a tensor that the file holds; empty when the file does not hold it.
  virtual std::string unusable_reason(std::string_view name) const;
};

}  // namespace pelton::weights
