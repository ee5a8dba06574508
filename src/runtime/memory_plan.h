// Every byte the engine will hold, worked out from headers before anything is read: the contract
// that start-up then takes exactly. Scratch comes from a dry run of the real forward over a
// counting arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kv/pages/kv_pages.h"
#include "models/model.h"
#include "runtime/batch_builder.h"

namespace pelton::runtime {

struct EngineShape {
  int32_t max_model_len = 4096;
  int32_t max_num_seqs = 16;
  int32_t max_num_batched_tokens = 512;
  int32_t max_logit_rows = 16;  // rows of one step whose logits may be wanted
  int32_t block_tokens = 32;
  kernels::KvFormat kv_format = kernels::KvFormat::kF16;
  bool invariant = false;   // on a device: DeviceStep::invariant
  size_t memory_limit = 0;  // bytes of memory in all; 0 = what the context needs
  bool graphs = true;       // on a device: decode steps are captured and replayed
};

// Weights, cache and scratch lie in the device's memory when `on_device` is set, else in anonymous
// host memory.
struct MemoryPlan {
  bool on_device = false;
  size_t weights = 0;   // repacked weights
  size_t made = 0;      // random weights of a shape: used where they were made, in host memory
  size_t kv_cache = 0;  // all blocks
  size_t scratch = 0;   // one step's arena
  size_t host = 0;      // tokenizer, tables, threads, program
  size_t inputs = 0;    // a step's integers: as much on the device as in pinned host memory
  size_t sampled = 0;   // on the device: tokens that a step chose there
  size_t graphs = 0;    // captured decode steps
  size_t shared = 0;    // on the device: what kernels' launches share, taken with the backend
  size_t pinned = 0;    // host memory that the device copies to and from, weights' way in included
  size_t mapped_weights =
      0;  // used in place where the file is mapped; reclaimable by the system, not anonymous

  int32_t num_blocks = 0;
  int32_t block_tokens = 0;
  size_t kv_block_bytes = 0;
  size_t kv_token_bytes = 0;
  size_t streamed_weights = 0;  // bytes that one decoded token reads
  size_t parameters = 0;
  uint64_t arrangement = 0;  // nn::WeightStorage's

  size_t anonymous() const {
    return host + made + (on_device ? pinned : weights + kv_cache + scratch);
  }
  size_t device() const {
    return on_device ? weights + kv_cache + scratch + inputs + sampled + graphs + shared : 0;
  }
  int64_t kv_tokens() const { return int64_t{num_blocks} * block_tokens; }
};

// Scratch of one step of `model` at the shape's widest, run by `threads` threads at level `isa`
// (some ops' scratch depends on them) or on `device`.
size_t plan_scratch(const models::Model& model, const EngineShape& shape, int threads, IsaLevel isa,
                    kernels::ActivationPrecision activations,
                    const ops::DeviceStep* device = nullptr);

BatchLimits batch_limits(const EngineShape& shape);
// Bytes of the logits that one step may give.
size_t logit_bytes(const EngineShape& shape, int32_t vocab_size);
// Bytes of the tokens, and their states, that one step may choose on a device.
size_t sampled_bytes(const EngineShape& shape);
// Fills in what a runner on a device with these kernels takes besides weights, pages and scratch.
void plan_device_side(const EngineShape& shape, const models::ModelConfig& config,
                      const kernels::DeviceKernels& kernels, MemoryPlan* plan);

}  // namespace pelton::runtime
