#include "kv/pages/kv_pages.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace pelton::kv {
namespace {

// Keys of one block in one layer; values take as much.
size_t half_bytes(const KvConfig& config, const KvLayerShape& shape) {
  return static_cast<size_t>(config.block_tokens) * static_cast<size_t>(shape.num_kv_heads) *
         static_cast<size_t>(kernels::kv_head_token_bytes(config.format, shape.head_dim));
}

void check_config(const KvConfig& config) {
  check(config.block_tokens >= 16 && config.block_tokens <= 256 &&
            std::has_single_bit(static_cast<uint32_t>(config.block_tokens)),
        "block_tokens must be a power of two from 16 to 256");
  for (const KvLayerShape& shape : config.layers) {
    check(shape.num_kv_heads > 0 && shape.head_dim > 0 && shape.head_dim % 8 == 0,
          "KV heads need a head_dim that is a multiple of 8");
  }
}

}  // namespace

size_t kv_block_bytes(const KvConfig& config) {
  check_config(config);
  size_t bytes = 0;
  for (const KvLayerShape& shape : config.layers) bytes += 2 * half_bytes(config, shape);
  return bytes;
}

size_t kv_token_bytes(const KvConfig& config) {
  return kv_block_bytes(config) / static_cast<size_t>(config.block_tokens);
}

Result<KvPages> KvPages::create(const KvConfig& config, int32_t num_blocks,
                                device::Device* device) {
  check(num_blocks >= 0, "negative number of blocks");
  const size_t block = kv_block_bytes(config);
  const auto bytes = checked_mul(block, static_cast<size_t>(num_blocks));
  if (!bytes) {
    return resource_exhausted(
        fmt::format("{} blocks of {} bytes of keys and values", num_blocks, block));
  }
  KvPages pages;
  if (device != nullptr) {
    auto region = memory::DeviceRegion::allocate(*device, *bytes);
    if (!region.ok()) return region.status().with_context("keys and values");
    pages.on_device_ = true;
    pages.device_region_ = std::move(*region);
  } else {
    auto region = memory::Region::allocate(*bytes);
    if (!region.ok()) return region.status().with_context("keys and values");
    pages.region_ = std::move(*region);
  }
  pages.config_ = config;
  pages.num_blocks_ = num_blocks;
  size_t offset = 0;
  for (const KvLayerShape& shape : config.layers) {
    pages.layer_offsets_.push_back(offset);
    offset += 2 * half_bytes(config, shape);
  }
  pages.block_bytes_ = block;
  return pages;
}

kernels::KvLayerView KvPages::layer(int index) const {
  check(index >= 0 && index < static_cast<int>(config_.layers.size()), "no such layer");
  const KvLayerShape& shape = config_.layers[static_cast<size_t>(index)];
  // Pages without blocks, as dry runs have them, lie nowhere.
  std::byte* base = storage().data();
  std::byte* keys = base == nullptr ? nullptr : base + layer_offsets_[static_cast<size_t>(index)];
  return {.keys = keys,
          .values = keys == nullptr ? nullptr : keys + half_bytes(config_, shape),
          .block_bytes = block_bytes_,
          .block_tokens = config_.block_tokens,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .format = config_.format};
}

Status KvPages::copy_block(int32_t source, int32_t target, device::Stream* stream) {
  check(source >= 0 && source < num_blocks_ && target >= 0 && target < num_blocks_,
        "no such block");
  if (source == target) return {};
  std::byte* base = storage().data();
  std::byte* to = base + static_cast<size_t>(target) * block_bytes_;
  const std::byte* from = base + static_cast<size_t>(source) * block_bytes_;
  if (on_device_) {
    check(stream != nullptr, "pages on a device are copied by a stream");
    return stream->copy_within(to, from, block_bytes_);
  }
  std::memcpy(to, from, block_bytes_);
  return {};
}

}  // namespace pelton::kv
