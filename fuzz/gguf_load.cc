// The GGUF reader over arbitrary bytes. What it accepts must keep every promise, answer every typed
// getter, and reload equal after being written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "weights/gguf.h"
#include "weights/testing/gguf_writer.h"
#include "weights/testing/source_oracle.h"

namespace pelton::weights {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void call_every_getter(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    const bool integer = file.get_int(key).ok();
    const bool number = file.get_float(key).ok();
    require(number || !integer);
    const int kinds = static_cast<int>(number) + static_cast<int>(file.get_bool(key).ok()) +
                      static_cast<int>(file.get_string(key).ok()) +
                      static_cast<int>(file.get_strings(key) != nullptr) +
                      static_cast<int>(file.get_ints(key) != nullptr) +
                      static_cast<int>(file.get_floats(key) != nullptr);
    require(kinds == 1);
  }
}

// Bitwise, so that NaN equals itself.
bool same_value(const GgufValue& a, const GgufValue& b) {
  return testing::encode(a) == testing::encode(b);
}

void reload(const GgufFile& file) {
  const std::string bytes = testing::write_gguf(testing::spec_of(file));
  const auto again = GgufFile::parse(std::as_bytes(std::span(bytes)), "again.gguf");
  require(again.ok());
  require((*again)->metadata().size() == file.metadata().size());
  for (const auto& [key, value] : file.metadata())
    require(same_value((*again)->metadata().at(key), value));
  require((*again)->tensors().size() == file.tensors().size());
  for (const TensorInfo& tensor : file.tensors()) {
    const TensorInfo* twin = (*again)->find(tensor.name);
    require(twin != nullptr && twin->shape == tensor.shape && twin->format == tensor.format &&
            twin->data.size() == tensor.data.size() &&
            std::memcmp(twin->data.data(), tensor.data.data(), tensor.data.size()) == 0);
  }
}

}  // namespace
}  // namespace pelton::weights

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::weights;
  // A copy of exactly this size: reading past the end is then seen, and the start is aligned.
  const std::unique_ptr<std::byte[]> bytes(new std::byte[size]);
  std::memcpy(bytes.get(), data, size);
  const std::span<const std::byte> file_bytes(bytes.get(), size);
  const auto file = GgufFile::parse(file_bytes, "fuzz.gguf");
  if (!file.ok()) {
    require(file.status().message().starts_with("fuzz.gguf: "));
    require(file.status().message().find('\n') == std::string::npos);
    return 0;
  }
  require(testing::broken_promise(**file, file_bytes).empty());
  call_every_getter(**file);
  reload(**file);
  return 0;
}
