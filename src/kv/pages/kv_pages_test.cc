#include "kv/pages/kv_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pelton::kv {
namespace {

using kernels::KvFormat;

TEST(KvPagesTest, TokenBytesFollowTheFormula) {
  KvConfig config{.layers = std::vector<KvLayerShape>(30, {3, 64}), .block_tokens = 32};
  EXPECT_EQ(kv_token_bytes(config), 2u * 30 * 3 * 64 * 2);
  EXPECT_EQ(kv_block_bytes(config), 32 * kv_token_bytes(config));
  config.format = KvFormat::kInt8;
  EXPECT_EQ(kv_token_bytes(config), 2u * 30 * 3 * (64 + 4));
  config.format = KvFormat::kF32;
  EXPECT_EQ(kv_token_bytes(config), 2u * 30 * 3 * 64 * 4);
}

TEST(KvPagesTest, LayersOfDifferentShapesDoNotOverlap) {
  KvConfig config{.layers = {{2, 64}, {1, 256}, {3, 8}}, .block_tokens = 16};
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
    config.format = format;
    auto pages = KvPages::create(config, 3);
    ASSERT_TRUE(pages.ok());
    EXPECT_GE(pages->bytes(), 3 * kv_block_bytes(config));
    std::vector<std::pair<std::byte*, std::byte*>> ranges;
    for (int i = 0; i < 3; ++i) {
      const kernels::KvLayerView view = pages->layer(i);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.keys) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.values) % 64, 0u);
      const auto half =
          16 * view.num_kv_heads * kernels::kv_head_token_bytes(format, view.head_dim);
      for (int b = 0; b < 3; ++b) {
        const auto skip = static_cast<ptrdiff_t>(view.block_bytes) * b;
        ranges.emplace_back(view.keys + skip, view.keys + skip + half);
        ranges.emplace_back(view.values + skip, view.values + skip + half);
      }
    }
    std::ranges::sort(ranges);
    for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
    EXPECT_EQ(ranges.back().second - ranges.front().first,
              static_cast<ptrdiff_t>(3 * kv_block_bytes(config)));
  }
}

TEST(KvPagesTest, CopyBlockCopiesAllLayersAndNothingElse) {
  const KvConfig config{.layers = {{2, 64}, {1, 256}}, .block_tokens = 16};
  auto pages = KvPages::create(config, 3);
  ASSERT_TRUE(pages.ok());
  std::byte* base = pages->layer(0).keys;
  const size_t block = kv_block_bytes(config);
  for (size_t i = 0; i < 3 * block; ++i) base[i] = static_cast<std::byte>(i * 7 + i / block);
  const std::vector<std::byte> before(base, base + 3 * block);
  ASSERT_TRUE(pages->copy_block(0, 2).ok());
  EXPECT_TRUE(std::equal(base, base + 2 * block, before.begin()));
  EXPECT_TRUE(std::equal(base + 2 * block, base + 3 * block, before.begin()));
}

TEST(KvPagesTest, TooManyBlocksAreRefused) {
  const KvConfig config{.layers = std::vector<KvLayerShape>(200, {128, 256}), .block_tokens = 256};
  EXPECT_EQ(KvPages::create(config, 2147483647).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pelton::kv
