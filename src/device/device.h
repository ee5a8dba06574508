// One GPU, or a stand-in for tests. Nothing here throws, aborts or prints: what the driver reports
// comes back as a status, and an error that the device does not recover from makes it faulty for
// good: its owner ends the requests that run and turns health false.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "device/caps.h"
#include "device/stream.h"

namespace pelton::device {

struct MemoryInfo {
  size_t free = 0;
  size_t total = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  const Caps& caps() const { return caps_; }
  virtual Result<MemoryInfo> memory() = 0;

  // Device memory, aligned to 256 bytes at least; contents undefined. kResourceExhausted says how
  // much was asked for and how much is free. Taken at start only: streams that run wait for it.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  // Host memory that copies read and write without a detour.
  virtual Result<void*> allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;

  // OK, or the first error after which the device's memory cannot be trusted.
  Status fault() const {
    const std::lock_guard lock(mutex_);
    return fault_;
  }

  // Keeps the first fault and returns `status`, for the backends.
  Status set_fault(Status status) {
    const std::lock_guard lock(mutex_);
    if (fault_.ok()) fault_ = status;
    return status;
  }

 protected:
  explicit Device(Caps caps) : caps_(std::move(caps)) {}
  Caps caps_;

 private:
  mutable std::mutex mutex_;
  Status fault_;
};

struct CudaOptions {
  int index = 0;
  // How long one step or copy may take before the device counts as hung.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

// Whether this build holds the CUDA backend.
bool built_with_cuda();
// One clear line when there is no driver, an old one, no such device, or a GPU that this build's
// machine code does not run on (it is made for compute capability 9.0).
Result<std::unique_ptr<Device>> open_cuda(const CudaOptions& options);

}  // namespace pelton::device
