// A device for tests: its memory is the host's, its kernels are host code, and it can go wrong at
// any call. Work is really deferred until something waits for it, so that a missing wait shows, and
// every copy is held against the allocations that live.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "device/device.h"

namespace pelton::device {

enum class FakeCall : uint8_t {
  kAllocate,
  kAllocatePinned,
  kRelease,
  kCopyToDevice,
  kCopyToHost,
  kCopyWithin,
  kFill,
  kLaunch,
  kRecord,
  kWait,
  kCapture,
  kFinish,
  kCount,
};

enum class FakeFault : uint8_t {
  kError,    // the call fails and the device is at fault
  kHang,     // nothing queued from this call on is ever done; waiting gives up
  kCorrupt,  // a copy to the host brings 0xFF bytes (NaN); other calls do what they should
};

class FakeDevice final : public Device {
 public:
  // `memory_bytes`: what can be allocated in all.
  explicit FakeDevice(size_t memory_bytes = size_t{1} << 30);
  ~FakeDevice() override;

  // Goes wrong at call `call` (counted from 0 over all kinds).
  void inject(int64_t call, FakeFault fault) { plan_ = Plan{call, fault}; }
  int64_t calls() const { return calls_; }
  int64_t calls(FakeCall kind) const { return counts_[static_cast<size_t>(kind)]; }
  // What was noticed that no working program does: copies outside of allocations, use after
  // release.
  const std::string& misuse() const { return misuse_; }
  size_t live_bytes() const { return live_bytes_; }

  Result<MemoryInfo> memory() override;
  Result<void*> allocate(size_t bytes) override;
  void release(void* memory) override;
  Result<void*> allocate_pinned(size_t bytes) override;
  void release_pinned(void* memory) override;
  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Event>> create_event() override;

  // For the streams.
  struct Outcome {
    Status status;
    bool corrupt = false;
  };
  Outcome note(FakeCall kind);
  bool hung() const { return hung_; }
  Status give_up();
  void check_range(const void* memory, size_t bytes, std::string_view what);

 private:
  struct Plan {
    int64_t call;
    FakeFault fault;
  };
  Result<void*> take(std::map<const std::byte*, size_t>& live, size_t bytes);

  size_t memory_bytes_;
  size_t live_bytes_ = 0;
  std::map<const std::byte*, size_t> live_;
  std::map<const std::byte*, size_t> pinned_;
  std::optional<Plan> plan_;
  int64_t calls_ = 0;
  int64_t counts_[static_cast<size_t>(FakeCall::kCount)] = {};
  bool hung_ = false;
  std::string misuse_;
};

}  // namespace pelton::device
