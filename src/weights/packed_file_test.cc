#include "weights/packed_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/source_root.h"
#include "tests/support/temp_dir.h"
#include "weights/safetensors.h"

namespace pelton::weights {
namespace {

namespace fs = std::filesystem;

constexpr PackedKey kKey = {.source = 11, .layout = 22, .bytes = 2 * kPackedChunk + 1001};

std::vector<std::byte> payload() {
  std::vector<std::byte> bytes(kKey.bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 13 + i / 997);
  return bytes;
}

std::vector<std::byte> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class PackedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto writer = PackedWriter::create(path_, kKey);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const std::vector<std::byte> all = payload();
    ASSERT_TRUE((*writer)->append(std::span(all).first(kPackedChunk)).ok());
    ASSERT_TRUE((*writer)->append(std::span(all).subspan(kPackedChunk)).ok());
    EXPECT_FALSE(fs::exists(path_)) << "before all of it is there";
    ASSERT_TRUE((*writer)->commit().ok());
  }

  const pelton::testing::TempDir dir_;
  const fs::path path_ = dir_.path() / "packed";
};

TEST_F(PackedFileTest, ComesBackWithItsDigest) {
  const auto file = PackedFile::open(path_, kKey);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto got = (*file)->payload();
  const std::vector<std::byte> want = payload();
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0);
  const auto digest_of = [](std::span<const std::byte> bytes) {
    uint64_t digest = 0;
    for (size_t i = 0; i < bytes.size(); i += kPackedChunk)
      digest += packed_chunk_digest(i / kPackedChunk,
                                    bytes.subspan(i, std::min(kPackedChunk, bytes.size() - i)));
    return digest;
  };
  EXPECT_EQ(digest_of(want), (*file)->digest());
  for (const size_t at : {size_t{0}, size_t{12345}, kPackedChunk, want.size() - 1}) {
    std::vector<std::byte> changed = want;
    changed[at] ^= std::byte{1};
    EXPECT_NE(digest_of(changed), (*file)->digest()) << at;
  }
  std::vector<std::byte> swapped = want;
  std::swap_ranges(swapped.begin(), swapped.begin() + kPackedChunk, swapped.begin() + kPackedChunk);
  EXPECT_NE(digest_of(swapped), (*file)->digest());
}

TEST_F(PackedFileTest, WhatIsMadeOfSomethingElseIsRefused) {
  EXPECT_EQ(PackedFile::open(path_.string() + ".none", kKey).status().code(),
            StatusCode::kNotFound);
  for (PackedKey other : {PackedKey{12, 22, kKey.bytes}, PackedKey{11, 23, kKey.bytes},
                          PackedKey{11, 22, kKey.bytes + 1}}) {
    const auto file = PackedFile::open(path_, other);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(file.status().message().find("anew"), std::string::npos);
  }
}

TEST_F(PackedFileTest, AnyByteOfItsHeaderCountsAndSoDoesItsLength) {
  const std::vector<std::byte> good = read(path_);
  ASSERT_TRUE(PackedFile::parse(good, kKey).ok());
  for (size_t i = 0; i < 64; ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_FALSE(PackedFile::parse(bad, kKey).ok()) << i;
  }
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{71}, size_t{72}, good.size() - 1}) {
    EXPECT_FALSE(PackedFile::parse(std::span(good).first(size), kKey).ok()) << size;
  }
  std::vector<std::byte> longer = good;
  longer.emplace_back();
  EXPECT_FALSE(PackedFile::parse(longer, kKey).ok());
}

TEST_F(PackedFileTest, APayloadOfAnotherLengthIsNotWritten) {
  const fs::path other = path_.string() + ".short";
  {
    auto writer = PackedWriter::create(other, kKey);
    ASSERT_TRUE(writer.ok());
    const std::vector<std::byte> all = payload();
    ASSERT_TRUE((*writer)->append(std::span(all).first(100)).ok());
    EXPECT_EQ((*writer)->commit().code(), StatusCode::kInternal);
  }
  EXPECT_FALSE(fs::exists(other));
}

TEST(SourceDigestTest, FollowsTheFile) {
  const fs::path model = pelton::source_root() / "tests/data/runnel-2m/model.safetensors";
  const pelton::testing::TempDir dir;
  const fs::path copy = dir.path() / "model.safetensors";
  const auto digest = [](const fs::path& path) {
    auto set = SafetensorsSet::open(path);
    EXPECT_TRUE(set.ok());
    return source_digest(**set);
  };
  fs::copy_file(model, copy);
  fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add);
  const uint64_t before = digest(copy);
  EXPECT_EQ(digest(copy), before);
  fs::last_write_time(copy, fs::last_write_time(copy) + std::chrono::seconds(2));
  EXPECT_NE(digest(copy), before);
}

}  // namespace
}  // namespace pelton::weights
