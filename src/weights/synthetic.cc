#include "weights/synthetic.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "base/splitmix.h"
#include "base/thread_pool.h"

namespace pelton::weights {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);  // finite: rounding cannot meet a NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Values [first, first + count) of the stream `key`; four come of each counter.
void fill(uint64_t key, int64_t first, int64_t count, float centre, float spread, uint16_t* out) {
  for (int64_t i = first; i < first + count; i += 4) {
    const uint64_t bits = counter_bits(key, static_cast<uint64_t>(i) / 4);
    const int lanes = static_cast<int>(std::min<int64_t>(4, first + count - i));
    for (int lane = 0; lane < lanes; ++lane)
      out[i + lane] = to_bf16(centre + spread * signed_unit(bits, lane));
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

size_t SyntheticWeights::index_of(const TensorInfo& tensor) const {
  return static_cast<size_t>(&tensor - table_.tensors().data());
}

uint64_t SyntheticWeights::key_of(const TensorInfo& tensor) const {
  return mix_bits(seed_ * 0x9E3779B97F4A7C15ull + index_of(tensor));
}

std::optional<RandomTensor> SyntheticWeights::random(const TensorInfo& tensor) const {
  const SyntheticTensor& recipe = recipes_[index_of(tensor)];
  if (recipe.centre != 0.0f) return std::nullopt;
  return RandomTensor{key_of(tensor), recipe.spread};
}

void SyntheticWeights::prepare(const TensorInfo& tensor, ThreadPool& pool) const {
  const SyntheticTensor& recipe = recipes_[index_of(tensor)];
  auto* out = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(tensor.data.data()));
  const auto count = static_cast<int64_t>(tensor.data.size() / sizeof(uint16_t));
  constexpr int64_t kValuesPerItem = int64_t{1} << 18;
  const uint64_t key = key_of(tensor);
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
