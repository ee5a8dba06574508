// A batch of sequences with random lengths' pages, as the check and the benchmark need it.
#pragma once

#include <vector>

#include "harness.h"
#include "kernels/cuda/attention/paged_decode.h"

namespace pelton::bench_cuda {

struct DecodeCase {
  kernels::cuda::PageType type = kernels::cuda::PageType::kBF16;
  int heads = 32;
  int kv_heads = 8;
  int head_dim = 128;
  int block_tokens = 16;
  std::vector<int32_t> lengths = {};
  int window = 0;
  float soft_cap = 0;
  bool sinks = false;
};

struct DecodeBatch {
  Buffer q;
  Buffer pages;  // keys and values of a block side by side
  Buffer table;
  Buffer lengths;
  Buffer sinks;
  Buffer out;
  Buffer workspace;
  kernels::cuda::PagedDecodeArgs args;
};
// Blocks are dealt to the sequences in a scattered order. `layers` copies of the pages lie one
// behind the other, `layer_bytes` apart.
DecodeBatch make_decode_batch(const DecodeCase& c, int layers, uint64_t seed, size_t* layer_bytes);

}  // namespace pelton::bench_cuda
