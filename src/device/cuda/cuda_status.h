// CUDA's error codes as statuses.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "pelton/status.h"

namespace pelton::device {

// OK, kResourceExhausted for a lack of memory, else kInternal; `what` says what was tried.
Status cuda_status(cudaError_t error, std::string_view what);
// Whether memory and streams are as they were before the call that failed.
bool is_recoverable(cudaError_t error);

}  // namespace pelton::device
