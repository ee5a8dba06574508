#include "device/testing/fake_device.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

namespace pelton::device {
namespace {

using Work = std::function<void()>;

// Reached once the stream's queue went past it.
class FakeEvent final : public Event {
 public:
  Status finish() override { return flush ? flush() : Status(); }
  Result<float> milliseconds_since(const Event& /*earlier*/) const override { return 1.0f; }

  std::function<Status()> flush;
};

class FakeGraph final : public Graph {
 public:
  std::vector<Work> work;
};

class FakeStream final : public Stream {
 public:
  explicit FakeStream(FakeDevice& device) : device_(device) {}

  Status copy_to_device(void* target, const void* source, size_t bytes) override {
    device_.check_range(target, bytes, "target of a copy to the device");
    return copy(FakeCall::kCopyToDevice, target, source, bytes);
  }
  Status copy_to_host(void* target, const void* source, size_t bytes) override {
    device_.check_range(source, bytes, "source of a copy from the device");
    return copy(FakeCall::kCopyToHost, target, source, bytes);
  }
  Status copy_within(void* target, const void* source, size_t bytes) override {
    device_.check_range(source, bytes, "source of a copy on the device");
    device_.check_range(target, bytes, "target of a copy on the device");
    return copy(FakeCall::kCopyWithin, target, source, bytes);
  }
  Status fill(void* target, unsigned char value, size_t bytes) override {
    device_.check_range(target, bytes, "fill");
    const FakeDevice::Outcome outcome = device_.note(FakeCall::kFill);
    if (!outcome.status.ok()) return outcome.status;
    push([=] { std::memset(target, value, bytes); });
    return {};
  }

  Status launched(const char* /*kernel*/) override {
    return device_.note(FakeCall::kLaunch).status;
  }
  void* native() override { return nullptr; }
  Status call(Work work) override {
    push(std::move(work));
    return {};
  }

  Status record(Event& event) override {
    if (Status s = device_.note(FakeCall::kRecord).status; !s.ok()) return s;
    static_cast<FakeEvent&>(event).flush = [this] { return drain(); };
    return {};
  }
  Status wait(const Event& event) override {
    if (Status s = device_.note(FakeCall::kWait).status; !s.ok()) return s;
    const auto flush = static_cast<const FakeEvent&>(event).flush;
    return flush ? flush() : Status();
  }

  Status begin_capture() override {
    if (Status s = device_.note(FakeCall::kCapture).status; !s.ok()) return s;
    captured_ = std::make_unique<FakeGraph>();
    return {};
  }
  Result<std::unique_ptr<Graph>> end_capture() override {
    if (Status s = device_.note(FakeCall::kCapture).status; !s.ok()) return s;
    check(captured_ != nullptr, "no capture has begun");
    return std::unique_ptr<Graph>(std::move(captured_));
  }
  Status launch(Graph& graph) override {
    if (Status s = device_.note(FakeCall::kLaunch).status; !s.ok()) return s;
    for (const Work& work : static_cast<FakeGraph&>(graph).work) push(work);
    return {};
  }

  Status finish() override {
    if (Status s = device_.note(FakeCall::kFinish).status; !s.ok()) return s;
    return drain();
  }

 private:
  Status copy(FakeCall kind, void* target, const void* source, size_t bytes) {
    const FakeDevice::Outcome outcome = device_.note(kind);
    if (!outcome.status.ok()) return outcome.status;
    push([=, corrupt = outcome.corrupt && kind == FakeCall::kCopyToHost] {
      if (corrupt) {
        std::memset(target, 0xFF, bytes);
      } else if (bytes > 0) {
        std::memmove(target, source, bytes);
      }
    });
    return {};
  }
  void push(Work work) {
    if (captured_ != nullptr) {
      captured_->work.push_back(std::move(work));
    } else if (!device_.hung()) {
      queue_.push_back(std::move(work));
    }
  }
  Status drain() {
    if (device_.hung()) return device_.give_up();
    while (!queue_.empty()) {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      work();
    }
    return {};
  }

  FakeDevice& device_;
  std::deque<Work> queue_;
  std::unique_ptr<FakeGraph> captured_;
};

}  // namespace

FakeDevice::FakeDevice(size_t memory_bytes) : Device(h200_caps()), memory_bytes_(memory_bytes) {
  caps_.name = "fake device";
}

FakeDevice::~FakeDevice() {
  for (const auto& [memory, bytes] : live_)
    ::operator delete(const_cast<std::byte*>(memory), std::align_val_t{256});
  for (const auto& [memory, bytes] : pinned_)
    ::operator delete(const_cast<std::byte*>(memory), std::align_val_t{256});
}

FakeDevice::Outcome FakeDevice::note(FakeCall kind) {
  ++counts_[static_cast<size_t>(kind)];
  const int64_t call = calls_++;
  if (!plan_ || plan_->call != call) {
    Status before = fault();
    return {hung_ ? Status() : std::move(before)};
  }
  switch (plan_->fault) {
    case FakeFault::kHang:
      hung_ = true;
      return {};
    case FakeFault::kCorrupt:
      return {{}, true};
    default:
      return {set_fault(internal_error(fmt::format("fake device: fault at call {}", call)))};
  }
}

Status FakeDevice::give_up() {
  return set_fault(internal_error("fake device: did not finish within its patience"));
}

void FakeDevice::check_range(const void* memory, size_t bytes, std::string_view what) {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto found = live_.upper_bound(begin);
  if (bytes == 0) return;
  if (found != live_.begin()) {
    --found;
    if (begin + bytes <= found->first + found->second) return;
  }
  if (misuse_.empty()) misuse_ = fmt::format("{}: {} bytes outside of device memory", what, bytes);
}

Result<MemoryInfo> FakeDevice::memory() {
  return MemoryInfo{memory_bytes_ - live_bytes_, memory_bytes_};
}

Result<void*> FakeDevice::take(std::map<const std::byte*, size_t>& live, size_t bytes) {
  const size_t size = bytes == 0 ? 1 : bytes;
  void* memory = ::operator new(size, std::align_val_t{256});
  std::memset(memory, 0xFF, size);  // what nobody wrote reads as NaN
  live[static_cast<const std::byte*>(memory)] = bytes;
  return memory;
}

Result<void*> FakeDevice::allocate(size_t bytes) {
  if (Status s = note(FakeCall::kAllocate).status; !s.ok()) return s;
  if (bytes > memory_bytes_ - live_bytes_) {
    return resource_exhausted(fmt::format("the device has {} bytes free; {} were asked for",
                                          memory_bytes_ - live_bytes_, bytes));
  }
  live_bytes_ += bytes;
  return take(live_, bytes);
}

void FakeDevice::release(void* memory) {
  note(FakeCall::kRelease);
  const auto found = live_.find(static_cast<const std::byte*>(memory));
  if (found == live_.end()) {
    if (misuse_.empty()) misuse_ = "release of memory that is not allocated";
    return;
  }
  live_bytes_ -= found->second;
  live_.erase(found);
  ::operator delete(memory, std::align_val_t{256});
}

Result<void*> FakeDevice::allocate_pinned(size_t bytes) {
  if (Status s = note(FakeCall::kAllocatePinned).status; !s.ok()) return s;
  return take(pinned_, bytes);
}

void FakeDevice::release_pinned(void* memory) {
  note(FakeCall::kRelease);
  if (pinned_.erase(static_cast<const std::byte*>(memory)) == 0) {
    if (misuse_.empty()) misuse_ = "release of pinned memory that is not allocated";
    return;
  }
  ::operator delete(memory, std::align_val_t{256});
}

Result<std::unique_ptr<Stream>> FakeDevice::create_stream() {
  return std::unique_ptr<Stream>(std::make_unique<FakeStream>(*this));
}

Result<std::unique_ptr<Event>> FakeDevice::create_event() {
  return std::unique_ptr<Event>(std::make_unique<FakeEvent>());
}

}  // namespace pelton::device
