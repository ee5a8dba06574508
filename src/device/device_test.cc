#include "device/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "device/requirements.h"
#include "device/testing/fake_device.h"

namespace pelton::device {
namespace {

class FakeDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = device_.create_stream();
    ASSERT_TRUE(made.ok());
    stream_ = std::move(*made);
    memory_ = static_cast<char*>(*device_.allocate(64));
  }
  void TearDown() override {
    device_.release(memory_);
    EXPECT_EQ(device_.misuse(), "");
    EXPECT_EQ(device_.live_bytes(), 0u);
  }

  FakeDevice device_{1024};
  std::unique_ptr<Stream> stream_;
  char* memory_ = nullptr;
};

TEST_F(FakeDeviceTest, WorkIsDoneInOrderAndNotBeforeSomeoneWaits) {
  std::array<char, 4> back = {'-', '-', '-', '-'};
  ASSERT_TRUE(stream_->copy_to_device(memory_, "abcd", 4).ok());
  ASSERT_TRUE(stream_->copy_within(memory_ + 4, memory_, 2).ok());
  ASSERT_TRUE(stream_->call([this] { memory_[5] = 'z'; }).ok());
  ASSERT_TRUE(stream_->copy_to_host(back.data(), memory_ + 3, 3).ok());
  EXPECT_EQ(back[0], '-');
  ASSERT_TRUE(stream_->finish().ok());
  EXPECT_EQ(std::string(back.data(), 3), "daz");
}

TEST_F(FakeDeviceTest, EventsFlushWhatWasRecordedBefore) {
  auto event = device_.create_event();
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE((*event)->finish().ok());
  ASSERT_TRUE(stream_->fill(memory_, 7, 64).ok());
  ASSERT_TRUE(stream_->record(**event).ok());
  ASSERT_TRUE((*event)->finish().ok());
  EXPECT_EQ(memory_[63], 7);
}

TEST_F(FakeDeviceTest, GraphsReplayWhatWasCaptured) {
  memory_[0] = 0;
  ASSERT_TRUE(stream_->begin_capture().ok());
  ASSERT_TRUE(stream_->call([this] { ++memory_[0]; }).ok());
  auto graph = stream_->end_capture();
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(stream_->finish().ok());
  EXPECT_EQ(memory_[0], 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream_->launch(**graph).ok());
  ASSERT_TRUE(stream_->finish().ok());
  EXPECT_EQ(memory_[0], 3);
}

TEST_F(FakeDeviceTest, MemoryIsBoundedAndTheShortfallIsTold) {
  const auto more = device_.allocate(961);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(more.status().message().find("960"), std::string::npos);
  EXPECT_TRUE(device_.fault().ok()) << "a lack of memory is no fault";
}

TEST_F(FakeDeviceTest, AnErrorAtAnyCallStaysWithTheDevice) {
  const int64_t first = device_.calls();
  for (int64_t k = 0; k < 3; ++k) {
    FakeDevice device;
    auto stream = device.create_stream();
    auto memory = device.allocate(8);
    ASSERT_TRUE(memory.ok());
    device.inject(1 + k, FakeFault::kError);
    std::array<Status, 3> got = {(*stream)->copy_to_device(*memory, "12345678", 8),
                                 (*stream)->launched("kernel"), (*stream)->finish()};
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(got[static_cast<size_t>(i)].ok(), i < k) << k << i;
    EXPECT_EQ(device.fault().code(), StatusCode::kInternal);
    device.release(*memory);
  }
  EXPECT_EQ(device_.calls(), first);
}

TEST_F(FakeDeviceTest, AHangIsFoundByWaiting) {
  device_.inject(device_.calls(), FakeFault::kHang);
  EXPECT_TRUE(stream_->fill(memory_, 1, 8).ok());
  EXPECT_TRUE(device_.fault().ok());
  EXPECT_EQ(stream_->finish().code(), StatusCode::kInternal);
  EXPECT_EQ(device_.fault().code(), StatusCode::kInternal);
}

TEST_F(FakeDeviceTest, CorruptionReadsAsNan) {
  float value = 1.0f;
  ASSERT_TRUE(stream_->fill(memory_, 0, 4).ok());
  device_.inject(device_.calls(), FakeFault::kCorrupt);
  ASSERT_TRUE(stream_->copy_to_host(&value, memory_, 4).ok());
  ASSERT_TRUE(stream_->finish().ok());
  EXPECT_NE(value, value);
}

TEST(FakeDeviceMisuseTest, CopiesOutsideOfAllocationsAreNoticed) {
  FakeDevice device;
  auto stream = device.create_stream();
  auto memory = device.allocate(8);
  ASSERT_TRUE((*stream)->fill(static_cast<char*>(*memory) + 4, 0, 5).ok());
  EXPECT_NE(device.misuse(), "");
}

TEST(OpenCudaTest, AMachineWithoutOneIsToldInOneLine) {
  auto device = open_cuda({});
  if (device.ok()) {
    EXPECT_TRUE((*device)->caps().is_hopper());
    EXPECT_EQ(open_cuda({.index = 1000}).status().code(), StatusCode::kInvalidArgument);
    return;
  }
  EXPECT_EQ(device.status().code(), StatusCode::kUnsupported) << device.status().to_string();
  EXPECT_EQ(device.status().message().find('\n'), std::string::npos);
}

void expect_one_line(const Status& status, std::initializer_list<const char*> words) {
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  for (const char* word : words)
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(DeviceRequirements, EachLackHasItsLine) {
  expect_one_line(explain_no_device({.driver = 0, .runtime = 13000}), {"no NVIDIA driver"});
  expect_one_line(explain_no_device({.driver = 12040, .runtime = 13000, .refused = true}),
                  {"too old", "12.4", "13.0"});
  expect_one_line(explain_no_device({.driver = 13000, .runtime = 13010}), {"no NVIDIA GPU"});
}

TEST(DeviceRequirements, OtherGpusAreToldApart) {
  EXPECT_TRUE(check_runs_on(h200_caps()).ok());
  Caps other = h200_caps();
  other.name = "NVIDIA A100";
  other.compute_major = 8;
  expect_one_line(check_runs_on(other), {"NVIDIA A100", "8.0", "9.0"});
  other.compute_major = 10;
  expect_one_line(check_runs_on(other), {"10.0"});
}

}  // namespace
}  // namespace pelton::device
