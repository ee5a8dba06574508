#include <algorithm>
#include <array>
#include <memory>

#include "bench_lib/roofline.h"
#include "ops/step_context.h"

namespace pelton::bench_lib {
namespace {

// Device memory for as long as a measurement lasts.
class Loan {
 public:
  Loan(device::Device& device, void* memory) : device_(device), memory_(memory) {}
  ~Loan() { device_.release(memory_); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  device::Device& device_;
  void* memory_;
};

}  // namespace

Result<Roofline> measure_device_roofline(const runtime::Backend& backend) {
  device::Device& device = backend.device();
  device::Stream& stream = backend.stream();
  constexpr size_t kMost = size_t{2} << 30;
  constexpr size_t kUnit = 256;
  constexpr int kPasses = 8;
  const auto info = device.memory();
  if (!info.ok()) return info.status();
  const size_t bytes = std::min(kMost, info->free / 4) / 2 / kUnit * kUnit;
  const auto memory = device.allocate(2 * bytes);
  if (!memory.ok()) return memory.status();
  const Loan loan(device, *memory);
  auto* source = static_cast<std::byte*>(*memory);
  std::array<std::unique_ptr<device::Event>, kPasses + 1> marks;
  for (auto& mark : marks) {
    auto event = device.create_event();
    if (!event.ok()) return event.status();
    mark = std::move(*event);
  }
  if (Status s = stream.fill(source, 1, 2 * bytes); !s.ok()) return s;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (Status s = stream.record(*marks[i]); !s.ok()) return s;
    if (i + 1 == marks.size()) break;
    if (Status s = ops::copy_within(backend.kernels(), stream, source + bytes, source, bytes);
        !s.ok()) {
      return s;
    }
  }
  if (Status s = stream.finish(); !s.ok()) return s;
  Roofline roofline;
  for (size_t i = 0; i + 1 < marks.size(); ++i) {
    const auto milliseconds = marks[i + 1]->milliseconds_since(*marks[i]);
    if (!milliseconds.ok()) return milliseconds.status();
    roofline.read_bytes_per_second =
        std::max(roofline.read_bytes_per_second,
                 2.0 * static_cast<double>(bytes) * 1e3 / static_cast<double>(*milliseconds));
  }
  return roofline;
}

}  // namespace pelton::bench_lib
