// A step of sequences with several query rows each, over random pages.
#pragma once

#include <vector>

#include "harness.h"
#include "kernels/cuda/attention/paged_prefill.h"
#include "paged_decode_cases.h"

namespace pelton::bench_cuda {

struct PrefillCase {
  DecodeCase pages;  // its lengths are the contexts
  std::vector<int> rows = {};
};

struct PrefillBatch {
  DecodeBatch pages;
  Buffer q;
  Buffer out;  // of some rows more than there are
  Buffer sequences;
  Buffer workspace;
  std::vector<kernels::SequenceSlice> slices;
  size_t layer_bytes = 0;
  kernels::cuda::PagedPrefillArgs args;
};
PrefillBatch make_prefill_batch(const PrefillCase& c, int layers, uint64_t seed);
Buffer upload_slices(const std::vector<kernels::SequenceSlice>& slices);

}  // namespace pelton::bench_cuda
