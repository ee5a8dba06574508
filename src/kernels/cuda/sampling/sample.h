// The next token of every row, on the device: see params/sampling.h for what is computed.
//
// Parallel plan: a block of 512 threads a row, two a multiprocessor, one launch, no workspace. One
// scan of the row finds the highest logit and, above a threshold that the row's own first tile
// gives, the few hundred candidates among which top-k, top-p, min-p and the draw are then decided
// in shared memory by searches over exact integer sums: the row is read once. Rows that are too
// flat for that (or top-k above 256) are read again: once for the whole mass, and four times for a
// boundary that lies among all tokens, by histograms of the keys' digits; never sorted.
//
// Numerics: those of the CPU pipeline, operation by operation (no contraction, correctly rounded
// division). All sums are integers, so no bit depends on the order of additions or on the batch.
//
// Programmatic launch: nothing is read before the kernel ahead has ended. Graph capturable: the
// grid depends on `rows` alone.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/sampling.h"

namespace pelton::kernels::cuda {

bool supports(const SampleParams& params);
// cudaErrorNotSupported where supports() is false.
cudaError_t launch_sample(const SampleParams& params, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
