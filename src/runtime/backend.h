// The device that an engine runs on: the device itself, its one stream, and its kernels. An engine
// without a backend runs on the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "memory/device_region.h"
#include "ops/device_weights.h"
#include "ops/step_context.h"

namespace pelton::runtime {

// NVIDIA's libraries, which are opened where they are found: nothing needs them.
struct LibraryOptions {
  bool use = true;
  std::vector<std::string> folders;  // looked into first
};

class Backend {
 public:
  // One clear line where there is no such GPU.
  static Result<std::shared_ptr<Backend>> open_cuda(int index, const LibraryOptions& libraries);
  // Over a device and kernels of the caller's, for tests. `kernels` must outlive the backend.
  static Result<std::shared_ptr<Backend>> create(std::unique_ptr<device::Device> device,
                                                 const kernels::DeviceKernels& kernels);

  device::Device& device() const { return *device_; }
  device::Stream& stream() const { return *stream_; }
  const kernels::DeviceKernels& kernels() const { return *kernels_; }
  // What the kernels' launches in this stream share (DeviceKernels::zeroed_bytes).
  std::byte* zeroed() const { return zeroed_.bytes().data(); }
  // Queues the making of weights that no file holds.
  Status make_random_weights(const kernels::RandomWeightsParams& params) const {
    return ops::random_weights(*kernels_, *stream_, params);
  }
  // Null where it was not found or not wanted.
  kernels::cuda::CublasLt* cublaslt() const { return cublaslt_.get(); }
  // What a user should know of the libraries: a line, or nothing.
  const std::string& library_note() const { return library_note_; }

 private:
  Backend() = default;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  memory::DeviceRegion zeroed_;
  const kernels::DeviceKernels* kernels_ = nullptr;
  std::shared_ptr<kernels::cuda::CublasLt> cublaslt_;
  std::string library_note_;
};

// Whether this build can open a GPU.
bool built_with_cuda();

// What a dry run for a device plans with: the backend's own device, or the expected one where
// `backend` is null.
struct PlanTarget {
  explicit PlanTarget(const Backend* backend);
  ops::DeviceStep step() const {
    return {.caps = caps, .kernels = kernels, .has_cublaslt = has_cublaslt};
  }

  device::Caps caps;
  const kernels::DeviceKernels& kernels;
  bool has_cublaslt;
};

}  // namespace pelton::runtime
