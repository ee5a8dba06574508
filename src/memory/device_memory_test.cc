#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "device/testing/fake_device.h"
#include "memory/mirror.h"
#include "memory/uploader.h"

namespace pelton::memory {
namespace {

using device::FakeDevice;

TEST(DeviceRegionTest, IsGivenBackOnce) {
  FakeDevice device(1000);
  {
    auto region = DeviceRegion::allocate(device, 600);
    ASSERT_TRUE(region.ok());
    DeviceRegion moved = std::move(*region);
    EXPECT_EQ(moved.size(), 600u);
    EXPECT_EQ(device.live_bytes(), 600u);
    EXPECT_EQ(DeviceRegion::allocate(device, 600).status().code(), StatusCode::kResourceExhausted);
    auto pinned = DeviceRegion::allocate(device, 600, DeviceRegion::Kind::kPinnedHost);
    EXPECT_TRUE(pinned.ok()) << "host memory is not the device's";
  }
  EXPECT_EQ(device.live_bytes(), 0u);
  EXPECT_EQ(device.misuse(), "");
}

TEST(MirrorTest, TwinsLieAtTheSameOffset) {
  FakeDevice device;
  auto stream = device.create_stream();
  auto mirror = Mirror::create(device, 64);
  ASSERT_TRUE(mirror.ok());
  auto* host = reinterpret_cast<int32_t*>(mirror->host().data());
  std::iota(host, host + 16, 100);
  ASSERT_TRUE(mirror->upload(**stream, 32).ok());
  ASSERT_TRUE((*stream)->finish().ok());
  EXPECT_EQ(mirror->twin(host)[7], 107);
  EXPECT_EQ(*mirror->twin(host + 5), 105);
  EXPECT_NE(mirror->twin(host)[8], 108) << "only the used part is sent";
  EXPECT_EQ(reinterpret_cast<const char*>(mirror->twin(host)) - reinterpret_cast<char*>(host),
            mirror->shift());
  EXPECT_EQ(mirror->twin(static_cast<const int32_t*>(nullptr)), nullptr);
  const int32_t elsewhere = 0;
  EXPECT_THROW(mirror->twin(&elsewhere), InternalError);
}

TEST(UploaderTest, MoreThanBothBuffersArriveWhole) {
  FakeDevice device;
  auto stream = device.create_stream();
  auto uploader = Uploader::create(device, **stream);
  ASSERT_TRUE(uploader.ok());
  constexpr size_t kRow = 3000;
  const size_t bytes = (3 * Uploader::kBufferBytes / kRow + 7) * kRow;
  auto region = DeviceRegion::allocate(device, bytes);
  ASSERT_TRUE(region.ok());
  const auto value = [](size_t i) { return static_cast<std::byte>(i * 31 + i / kRow); };
  ASSERT_TRUE((*uploader)
                  ->upload(region->bytes().data(), bytes, kRow,
                           [&](size_t begin, std::span<std::byte> out) {
                             EXPECT_EQ(begin % kRow, 0u);
                             for (size_t i = 0; i < out.size(); ++i) out[i] = value(begin + i);
                           })
                  .ok());
  ASSERT_TRUE((*uploader)->finish().ok());
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong += region->bytes()[i] == value(i) ? 0 : 1;
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(device.misuse(), "");
}

TEST(UploaderTest, TheWayBackBringsTheSame) {
  FakeDevice device;
  auto stream = device.create_stream();
  auto uploader = Uploader::create(device, **stream);
  for (const size_t bytes :
       {size_t{0}, size_t{5}, Uploader::kBufferBytes, 2 * Uploader::kBufferBytes + 77}) {
    auto region = DeviceRegion::allocate(device, bytes);
    std::vector<std::byte> source(bytes);
    for (size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 4099);
    ASSERT_TRUE((*uploader)->upload(region->bytes().data(), source).ok());
    std::vector<std::byte> back;
    ASSERT_TRUE((*uploader)
                    ->download(region->bytes(),
                               [&](std::span<const std::byte> piece) {
                                 back.insert(back.end(), piece.begin(), piece.end());
                                 return Status();
                               })
                    .ok());
    EXPECT_TRUE(back == source) << bytes;
    if (bytes == 0) continue;
    const Status stopped = (*uploader)->download(
        region->bytes(), [](std::span<const std::byte>) { return io_error("full"); });
    EXPECT_EQ(stopped.code(), StatusCode::kIo);
  }
  EXPECT_EQ(device.misuse(), "");
}

TEST(UploaderTest, AFaultEndsTheUpload) {
  for (const auto fault : {device::FakeFault::kError, device::FakeFault::kHang}) {
    FakeDevice device;
    auto stream = device.create_stream();
    auto uploader = Uploader::create(device, **stream);
    auto region = DeviceRegion::allocate(device, 64);
    device.inject(device.calls(), fault);
    const std::vector<std::byte> source(64);
    Status status = (*uploader)->upload(region->bytes().data(), source);
    if (status.ok()) status = (*uploader)->finish();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace pelton::memory
