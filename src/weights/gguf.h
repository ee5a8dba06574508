// GGUF, versions 2 and 3 (docs/formats/gguf.md).
#pragma once

#include <map>
#include <optional>
#include <variant>

#include "weights/weight_source.h"

namespace pelton::weights {

// One metadata value. Unsigned integers of every width are uint64_t, signed ones int64_t; arrays of
// booleans and integers are int64_t. Nested arrays are refused.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class GgufFile final : public WeightSource {
 public:
  // For a split file, `path` is its first shard (NAME-00001-of-0000N.gguf); the others are opened
  // beside it and the tensors of all appear as one source. Metadata is the first shard's.
  static Result<std::unique_ptr<GgufFile>> open(const std::filesystem::path& path);
  // The same reader over the bytes of a whole file in memory, for fuzzing and tests; tensors point
  // into `bytes`.
  static Result<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes,
                                                 std::string path);

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override;
  const std::string& path() const override;
  uint64_t mapped_bytes() const override;

  uint32_t version() const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const;
  // Typed getters: an absent key gives nullopt, a key of another type an error naming key and type.
  // Strings are bytes: they need not be UTF-8.
  Result<std::optional<int64_t>> get_int(std::string_view key) const;
  Result<std::optional<double>> get_float(std::string_view key) const;  // accepts integers
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  // Null when absent or of another type.
  const std::vector<std::string>* get_strings(std::string_view key) const;
  const std::vector<int64_t>* get_ints(std::string_view key) const;
  const std::vector<double>* get_floats(std::string_view key) const;

  ~GgufFile() override;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::weights
