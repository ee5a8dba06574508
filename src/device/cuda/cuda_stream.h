// Streams, events and graphs over the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

#include "device/device.h"

namespace pelton::device {

// What streams and events need of their device. Turns codes into statuses and notes faults.
class CudaContext {
 public:
  CudaContext(Device& device, std::chrono::milliseconds patience)
      : device_(device), patience_(patience) {}

  Status status(cudaError_t error, std::string_view what);
  // Polls `query` (cudaStreamQuery, cudaEventQuery) until it is done or patience ends.
  template <typename Query>
  Status finish(const Query& query, std::string_view what);

 private:
  Status hung(std::string_view what);

  Device& device_;
  std::chrono::milliseconds patience_;
};

Result<std::unique_ptr<Stream>> create_cuda_stream(CudaContext& context);
Result<std::unique_ptr<Event>> create_cuda_event(CudaContext& context);

}  // namespace pelton::device
