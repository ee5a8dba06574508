// Device storage of keys and values: one arena, cut into blocks of `block_tokens` tokens; a block
// number means the same tokens in every layer. Which block belongs to whom is kv/blocks' business.
//
// A block is contiguous over all layers, so blocks that nobody used cost no resident memory and
// copy on write is one copy: block [layer][keys, values][kv head][...]. A head's keys are
// groups of 16 tokens, each [head_dim][16] (one vector lane a key); its values are
// [block_tokens][head_dim]; with int8 each is followed by [block_tokens] f32 scales, value = code *
// scale. Nothing is padded: head_dim is a multiple of 8 and block_tokens one of 16, so every head
// begins on a 64-byte boundary. On a device a head's keys lie as its values do (the device's
// kernels say so in kernels/params/device_kernels.h); sizes are the same. Values beyond f16's range
// become infinite in f16 pages; fp8 pages saturate at 448.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "memory/device_region.h"
#include "memory/region.h"
#include "ops/attention.h"

namespace pelton::kv {

struct KvLayerShape {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
};

struct KvConfig {
  std::vector<KvLayerShape> layers;
  int32_t block_tokens = 32;
  kernels::KvFormat format = kernels::KvFormat::kF16;
};

// Bytes of one block over all layers, keys and values, scales and padding included: planned =
// taken.
size_t kv_block_bytes(const KvConfig& config);
// The textbook figure: 2 * layers * kv heads * head dim * bytes a token (int8: plus its scales).
size_t kv_token_bytes(const KvConfig& config);

class KvPages {
 public:
  // In host memory, or in that of `device`, which must outlive the pages.
  static Result<KvPages> create(const KvConfig& config, int32_t num_blocks,
                                device::Device* device = nullptr);

  const KvConfig& config() const { return config_; }
  int32_t num_blocks() const { return num_blocks_; }
  size_t bytes() const { return storage().size(); }
  kernels::KvLayerView layer(int index) const;
  // Copies all layers of a block (copy on write); on a device in the order of `stream`.
  Status copy_block(int32_t source, int32_t target, device::Stream* stream = nullptr);

 private:
  std::span<std::byte> storage() const {
    return on_device_ ? device_region_.bytes() : region_.bytes();
  }

  KvConfig config_;
  int32_t num_blocks_ = 0;
  size_t block_bytes_ = 0;
  bool on_device_ = false;
  memory::Region region_;
  memory::DeviceRegion device_region_;
  std::vector<size_t> layer_offsets_;
};

}  // namespace pelton::kv
