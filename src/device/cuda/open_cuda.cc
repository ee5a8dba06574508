// The CUDA device. The runtime is linked statically and finds the driver when the first call is
// made, so the program starts where there is none.
#include <fmt/format.h>

#include "device/cuda/cuda_status.h"
#include "device/cuda/cuda_stream.h"
#include "device/requirements.h"

namespace pelton::device {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(Caps caps, int index, std::chrono::milliseconds patience)
      : Device(std::move(caps)), context_(*this, patience), index_(index) {}

  Result<MemoryInfo> memory() override {
    if (Status s = use(); !s.ok()) return s;
    MemoryInfo info;
    if (Status s = context_.status(cudaMemGetInfo(&info.free, &info.total), "asking for memory");
        !s.ok()) {
      return s;
    }
    return info;
  }

  Result<void*> allocate(size_t bytes) override {
    if (Status s = use(); !s.ok()) return s;
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) return out_of_memory(bytes);
    if (Status s = context_.status(error, "taking device memory"); !s.ok()) return s;
    return memory;
  }
  void release(void* memory) override {
    if (use().ok()) context_.status(cudaFree(memory), "giving back device memory").ok();
  }
  Result<void*> allocate_pinned(size_t bytes) override {
    if (Status s = use(); !s.ok()) return s;
    void* memory = nullptr;
    if (Status s = context_.status(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                                   fmt::format("taking {} bytes of pinned host memory", bytes));
        !s.ok()) {
      return s;
    }
    return memory;
  }
  void release_pinned(void* memory) override {
    context_.status(cudaFreeHost(memory), "giving back pinned memory").ok();
  }

  Result<std::unique_ptr<Stream>> create_stream() override {
    if (Status s = use(); !s.ok()) return s;
    return create_cuda_stream(context_);
  }
  Result<std::unique_ptr<Event>> create_event() override {
    if (Status s = use(); !s.ok()) return s;
    return create_cuda_event(context_);
  }

 private:
  // The runtime's current device belongs to the thread.
  Status use() { return context_.status(cudaSetDevice(index_), "choosing the device"); }

  Status out_of_memory(size_t bytes) {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return resource_exhausted(
        fmt::format("the GPU has {} of {} bytes free; {} were asked for, {} are missing", free,
                    total, bytes, bytes > free ? bytes - free : 0));
  }

  CudaContext context_;
  int index_;
};

Status no_device(cudaError_t error) {
  DriverVersions versions;
  cudaDriverGetVersion(&versions.driver);
  cudaRuntimeGetVersion(&versions.runtime);
  cudaGetLastError();
  versions.refused = error == cudaErrorInsufficientDriver;
  const bool none = error == cudaSuccess || error == cudaErrorNoDevice;
  if (versions.refused || none || versions.driver == 0) return explain_no_device(versions);
  return cuda_status(error, "looking for GPUs");
}

Result<Caps> read_caps(int index) {
  cudaDeviceProp properties;
  if (Status s = cuda_status(cudaGetDeviceProperties(&properties, index), "asking for properties");
      !s.ok()) {
    return s;
  }
  Caps caps = h200_caps();
  caps.name = properties.name;
  caps.compute_major = properties.major;
  caps.compute_minor = properties.minor;
  caps.num_sms = properties.multiProcessorCount;
  caps.memory_bytes = properties.totalGlobalMem;
  caps.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  caps.shared_memory_per_block = properties.sharedMemPerBlockOptin;
  return caps;
}

}  // namespace

bool built_with_cuda() { return true; }

Result<std::unique_ptr<Device>> open_cuda(const CudaOptions& options) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return no_device(error);
  if (options.index < 0 || options.index >= count) {
    return invalid_argument(
        fmt::format("there is no GPU {}: this machine shows {}", options.index, count));
  }
  Result<Caps> caps = read_caps(options.index);
  if (!caps.ok()) return caps.status();
  if (Status s = check_runs_on(*caps); !s.ok()) return s;
  auto device = std::make_unique<CudaDevice>(std::move(*caps), options.index, options.patience);
  // Sets up the context now, so that a GPU that is taken or broken is told at start.
  if (auto memory = device->memory(); !memory.ok()) return memory.status();
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace pelton::device
