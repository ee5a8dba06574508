#include "weights/synthetic.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "base/thread_pool.h"

namespace pelton::weights {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// 64 well mixed bits of a counter (Steele et al., "Fast splittable pseudorandom number generators",
// OOPSLA 2014).
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);  // finite: rounding cannot meet a NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Values [first, first + count) of the stream `key`; four come of each counter.
void fill(uint64_t key, int64_t first, int64_t count, float centre, float spread, uint16_t* out) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  for (int64_t i = first; i < first + count; i += 4) {
    const uint64_t bits = mix(key + (static_cast<uint64_t>(i) / 4 + 1) * kGolden);
    const int64_t lanes = std::min<int64_t>(4, first + count - i);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const auto part = static_cast<int16_t>(bits >> (16 * lane));
      out[i + lane] = to_bf16(centre + spread * (static_cast<float>(part) * 0x1p-15f));
    }
  }
}

}  // namespace

Result<std::unique_ptr<SyntheticWeights>> SyntheticWeights::create(
    const std::string& name, const std::vector<SyntheticTensor>& tensors, uint64_t seed) {
  std::unique_ptr<SyntheticWeights> source(new SyntheticWeights());
  source->name_ = name;
  source->seed_ = seed;
  source->recipes_ = tensors;
  const size_t page = page_bytes();
  std::vector<size_t> offsets;
  std::vector<size_t> sizes;
  std::optional<size_t> total = 0;
  for (const SyntheticTensor& tensor : tensors) {
    std::optional<size_t> bytes = sizeof(uint16_t);
    for (const int64_t size : tensor.shape) {
      bytes = bytes ? checked_mul(*bytes, static_cast<size_t>(size)) : bytes;
    }
    offsets.push_back(total.value_or(0));
    sizes.push_back(bytes.value_or(0));
    if (bytes) bytes = checked_add(*bytes, page - 1);
    total = total && bytes ? checked_add(*total, *bytes / page * page) : std::nullopt;
    if (!total) return resource_exhausted(name + ": more weights than there are addresses");
  }
  void* reserved = mmap(nullptr, std::max(*total, page), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return resource_exhausted(fmt::format("{}: cannot reserve {} bytes", name, *total));
  }
  source->reserved_ = static_cast<std::byte*>(reserved);
  source->size_ = std::max(*total, page);
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < tensors.size(); ++i) {
    infos.push_back({.name = tensors[i].name,
                     .format = WeightFormat::kBF16,
                     .shape = tensors[i].shape,
                     .data = {source->reserved_ + offsets[i], sizes[i]}});
  }
  if (Status s = source->table_.assign(std::move(infos), name); !s.ok()) return s;
  return source;
}

SyntheticWeights::~SyntheticWeights() {
  if (reserved_ != nullptr) munmap(reserved_, size_);
}

void SyntheticWeights::prepare(const TensorInfo& tensor, ThreadPool& pool) const {
  const auto index = static_cast<size_t>(&tensor - table_.tensors().data());
  const SyntheticTensor& recipe = recipes_[index];
  auto* out = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(tensor.data.data()));
  const auto count = static_cast<int64_t>(tensor.data.size() / sizeof(uint16_t));
  constexpr int64_t kValuesPerItem = int64_t{1} << 18;
  const uint64_t key = mix(seed_ * 0x9E3779B97F4A7C15ull + index);
  pool.parallel_for((count + kValuesPerItem - 1) / kValuesPerItem, [&](int64_t item, int) {
    const int64_t first = item * kValuesPerItem;
    fill(key, first, std::min(kValuesPerItem, count - first), recipe.centre, recipe.spread, out);
  });
}

void SyntheticWeights::release(const TensorInfo& tensor) const {
  const size_t page = page_bytes();
  madvise(const_cast<std::byte*>(tensor.data.data()), (tensor.data.size() + page - 1) / page * page,
          MADV_DONTNEED);
}

}  // namespace pelton::weights
