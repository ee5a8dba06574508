#include "weights/testing/source_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace pelton::weights::testing {
namespace {

std::string broken_tensor(const TensorInfo& tensor) {
  const auto fail = [&](std::string_view what) { return fmt::format("{}: {}", tensor.name, what); };
  if (tensor.name.empty() || tensor.name.size() > 256) return fail("name");
  int64_t elements = 1;
  for (int64_t size : tensor.shape) {
    if (size < 1 || elements > INT64_MAX / size) return fail("dimension");
    elements *= size;
  }
  if (elements != tensor.elements()) return fail("elements");
  const WeightFormatInfo& info = weight_format_info(tensor.format);
  if (!tensor.shape.empty() && tensor.shape.back() % info.block_elements != 0)
    return fail("row is not whole blocks");
  const int64_t blocks = elements / info.block_elements;
  if (blocks > INT64_MAX / info.block_bytes ||
      static_cast<uint64_t>(blocks * info.block_bytes) != tensor.data.size())
    return fail("bytes");
  const bool plain = info.block_elements == 1;
  if (plain &&
      reinterpret_cast<uintptr_t>(tensor.data.data()) % static_cast<unsigned>(info.block_bytes) !=
          0)
    return fail("not aligned");
  return {};
}

}  // namespace

std::string broken_promise(const WeightSource& source, std::span<const std::byte> file) {
  std::vector<std::span<const std::byte>> ranges;
  for (const TensorInfo& tensor : source.tensors()) {
    if (std::string broken = broken_tensor(tensor); !broken.empty()) return broken;
    if (source.find(tensor.name) != &tensor) return tensor.name + ": not found by its name";
    ranges.push_back(tensor.data);
  }
  const std::less_equal<const std::byte*> at_most;
  std::sort(ranges.begin(), ranges.end(),
            [](auto a, auto b) { return std::less<const std::byte*>()(a.data(), b.data()); });
  unsigned sum = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::byte* begin = ranges[i].data();
    const std::byte* end = begin + ranges[i].size();
    if (i + 1 < ranges.size() && !at_most(end, ranges[i + 1].data())) return "ranges overlap";
    const bool starts_inside =
        at_most(file.data(), begin) && at_most(begin, file.data() + file.size());
    if (starts_inside && !at_most(end, file.data() + file.size())) return "range passes the end";
    // Reading the ends makes the address sanitizer prove copies too.
    sum += std::to_integer<unsigned>(begin[0]) + std::to_integer<unsigned>(end[-1]);
  }
  return sum == ~0u ? "unreachable" : "";
}

}  // namespace pelton::weights::testing
