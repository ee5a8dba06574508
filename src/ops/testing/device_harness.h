// A device context for op tests: the fake device over the scalar references, or a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/testing/fake_device.h"
#include "kernels/params/device_kernels.h"
#include "kernels/ref/device_kernels.h"
#include "memory/device_region.h"
#include "memory/mirror.h"
#include "ops/op_harness.h"
#include "ops/step_context.h"

namespace pelton::ops {

enum class TestDevice { kFake, kCuda };
inline constexpr TestDevice kTestDevices[] = {TestDevice::kFake, TestDevice::kCuda};
inline std::string test_device_name(TestDevice device) {
  return device == TestDevice::kFake ? "fake" : "cuda";
}

class DeviceHarness {
 public:
  static constexpr size_t kBytes = size_t{192} << 20;
  static constexpr size_t kInputBytes = size_t{4} << 20;

  explicit DeviceHarness(TestDevice which) : pool_(1) {
    if (which == TestDevice::kFake) {
      device_ = std::make_unique<device::FakeDevice>();
    } else {
      auto opened = device::open_cuda({});
      if (!opened.ok()) {
        absent_ = opened.status().message();
        return;
      }
      device_ = std::move(*opened);
      std::string why;
      cublaslt_ = open_cublaslt({}, &why);
    }
    stream_ = std::move(*device_->create_stream());
    memory_ = *memory::DeviceRegion::allocate(*device_, kBytes);
    inputs_ = *memory::Mirror::create(*device_, kInputBytes);
    arena_.emplace(memory_.bytes());
    const kernels::DeviceKernels& kernels =
        which == TestDevice::kFake ? kernels::ref::device_kernels() : cuda_kernels();
    zeroed_ = *memory::DeviceRegion::allocate(*device_, kernels.zeroed_bytes);
    if (kernels.zeroed_bytes > 0) {
      EXPECT_TRUE(stream_->fill(zeroed_.bytes().data(), 0, kernels.zeroed_bytes).ok());
    }
    step_.emplace(
        DeviceStep{device_->caps(), kernels, stream_.get(), &inputs_, zeroed_.bytes().data()});
    context_.emplace(StepContext{
        .arena = *arena_, .pool = pool_, .cpu = kernels::generic_kernels(), .device = &*step_});
  }

  // Why there is no such device; empty when there is.
  const std::string& absent() const { return absent_; }
  StepContext& context() { return *context_; }
  device::Device& device() { return *device_; }
  void set_invariant(bool invariant) { step_->invariant = invariant; }
  // Makes this entry the cheapest for products, or with "" none; false where there is no such entry
  // or library.
  bool prefer(std::string_view name) {
    const kernels::DeviceKernels& all = own_list_ ? *all_kernels_ : step_->kernels;
    all_kernels_ = &all;
    entries_.assign(all.matmul.begin(), all.matmul.end());
    const auto entry = std::ranges::find(entries_, name, &kernels::MatmulEntry::name);
    if (!name.empty() && entry == entries_.end()) return false;
    if (name.starts_with("cublaslt") && cublaslt_ == nullptr) return false;
    if (!name.empty()) {
      entry->cost = [](const device::Caps&, const kernels::MatmulProblem&) { return 0.0; };
    }
    own_list_ = all;
    own_list_->matmul = entries_;
    const DeviceStep before = *step_;
    step_.emplace(DeviceStep{.caps = before.caps,
                             .kernels = *own_list_,
                             .stream = before.stream,
                             .inputs = before.inputs,
                             .zeroed = before.zeroed,
                             .max_context = before.max_context,
                             .invariant = before.invariant,
                             .has_cublaslt = cublaslt_ != nullptr,
                             .cublaslt = cublaslt_.get()});
    return true;
  }

  // Forgets everything that was put.
  void reset() {
    finish();
    arena_->reset();
    input_bytes_ = 0;
  }
  void finish() { EXPECT_TRUE(stream_->finish().ok()) << device_->fault().to_string(); }

  // Copies to the device.
  template <typename T>
  T* put(std::span<const T> values) {
    auto* at = context_->arena.allocate_array<T>(std::ssize(values));
    EXPECT_TRUE(stream_->copy_to_device(at, values.data(), values.size_bytes()).ok());
    finish();
    return at;
  }
  float* put(const std::vector<float>& values) { return put(std::span<const float>(values)); }
  Tensor put(const Matrix& m, DType type = DType::kF32) {
    if (type == DType::kF32) return Tensor::rows(put(m.values), type, m.rows, m.columns);
    std::vector<uint16_t> bits(m.values.size());
    std::ranges::transform(m.values, bits.begin(), f32_to_bf16);
    return Tensor::rows(put(std::span<const uint16_t>(bits)), type, m.rows, m.columns);
  }
  // A matrix whose elements read as NaN until something writes them.
  Tensor blank(int64_t rows, int64_t columns, DType type = DType::kF32) {
    const Tensor t = context_->arena.rows(type, rows, columns);
    EXPECT_TRUE(
        stream_->fill(t.data, 0xFF, static_cast<size_t>(rows * columns * dtype_bytes(type))).ok());
    return t;
  }
  Matrix get(const Tensor& t) {
    Matrix m(t.num_rows(), t.row_elements());
    const auto element = static_cast<size_t>(dtype_bytes(t.dtype));
    const size_t row_bytes = static_cast<size_t>(m.columns) * element;
    std::vector<std::byte> bytes(static_cast<size_t>(m.rows) * row_bytes);
    for (int64_t r = 0; r < m.rows; ++r) {
      const auto* row =
          static_cast<const std::byte*>(t.data) + static_cast<size_t>(r * t.row_stride) * element;
      EXPECT_TRUE(
          stream_->copy_to_host(bytes.data() + static_cast<size_t>(r) * row_bytes, row, row_bytes)
              .ok());
    }
    finish();
    for (size_t i = 0; i < m.values.size(); ++i) {
      if (t.dtype == DType::kF32) {
        std::memcpy(&m.values[i], bytes.data() + 4 * i, 4);
      } else {
        uint16_t bits;
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        m.values[i] = bf16_to_f32(bits);
      }
    }
    return m;
  }

  // Step integers, in the mirror. Sent with send().
  template <typename T>
  std::span<T> input(std::span<const T> values) {
    std::byte* at = inputs_.host().data() + input_bytes_;
    if (!values.empty()) std::memcpy(at, values.data(), values.size_bytes());
    input_bytes_ += (values.size_bytes() + 63) / 64 * 64;
    EXPECT_LE(input_bytes_, kInputBytes);
    return {reinterpret_cast<T*>(at), values.size()};
  }
  std::span<const int32_t> input(const std::vector<int32_t>& values) {
    return input(std::span<const int32_t>(values));
  }
  void send() { EXPECT_TRUE(inputs_.upload(*stream_, input_bytes_).ok()); }

 private:
  std::string absent_;
  ThreadPool pool_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  memory::DeviceRegion memory_;
  memory::DeviceRegion zeroed_;
  memory::Mirror inputs_;
  size_t input_bytes_ = 0;
  std::optional<memory::StepArena> arena_;
  std::shared_ptr<kernels::cuda::CublasLt> cublaslt_;
  const kernels::DeviceKernels* all_kernels_ = nullptr;
  std::vector<kernels::MatmulEntry> entries_;
  std::optional<kernels::DeviceKernels> own_list_;
  std::optional<DeviceStep> step_;
  std::optional<StepContext> context_;
};

}  // namespace pelton::ops
