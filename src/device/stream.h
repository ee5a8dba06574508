// Work in order on a device. Every call only queues, except where it says that it waits. An error
// is a status, and the first one stays with the device (Device::fault): most are found by a later
// call than the one that caused them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/result.h"

namespace pelton::device {

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Waits until the recorded point is reached; an event never recorded is reached.
  virtual Status finish() = 0;
  // Milliseconds between two recorded and reached points.
  virtual Result<float> milliseconds_since(const Event& earlier) const = 0;
};

// Captured work that can be queued again as one launch. Addresses are those of the capture.
class Graph {
 public:
  virtual ~Graph() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;

  // The host side of a copy should be pinned (Device::allocate_pinned) and stay untouched until the
  // copy is done.
  virtual Status copy_to_device(void* target, const void* source, size_t bytes) = 0;
  virtual Status copy_to_host(void* target, const void* source, size_t bytes) = 0;
  virtual Status copy_within(void* target, const void* source, size_t bytes) = 0;
  virtual Status fill(void* target, unsigned char value, size_t bytes) = 0;

  // After a kernel was launched on native(): the launch's error, if any, with the kernel's name.
  virtual Status launched(const char* kernel) = 0;
  // The backend's handle (a cudaStream_t); null for a device whose kernels run on the host.
  virtual void* native() = 0;
  // Queues a call on the host, for devices whose kernels are host code; others refuse.
  virtual Status call(std::function<void()> work) = 0;

  virtual Status record(Event& event) = 0;
  virtual Status wait(const Event& event) = 0;

  // Between these, work is noted down instead of done.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
  virtual Status launch(Graph& graph) = 0;

  // Waits until everything queued is done. A device that does not finish within its patience is
  // taken for hung: kInternal, and the device is at fault from then on.
  virtual Status finish() = 0;
};

}  // namespace pelton::device
