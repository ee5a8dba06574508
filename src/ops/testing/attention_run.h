// Runs one attention case step by step on a device. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_cases.h"
#include "ops/testing/device_harness.h"

namespace pelton::ops {

// Sequences of one attention case, their pages on the device.
class AttentionRun {
 public:
  // Queries, keys and values are activations of `type`.
  AttentionRun(DeviceHarness& harness, const AttentionCase& c, kernels::KvFormat format,
               std::vector<int32_t> lengths, DType type = DType::kF32)
      : harness_(harness),
        case_(c),
        type_(type),
        lengths_(std::move(lengths)),
        done_(lengths_.size(), 0) {
    harness.reset();
    int32_t blocks = 0;
    for (const int32_t length : lengths_) {
      std::vector<int32_t> table;
      for (int32_t t = 0; t < length; t += kBlock) table.push_back(blocks++);
      tables_.push_back(std::move(table));
    }
    // Scatter: block b becomes (b * step) mod blocks, step coprime to blocks.
    int32_t step = 7;
    while (std::gcd(step, blocks) != 1) ++step;
    for (auto& table : tables_)
      for (int32_t& b : table) b = b * step % blocks;
    const auto half =
        static_cast<size_t>(kBlock * c.kv_heads * kernels::kv_head_token_bytes(format, c.head_dim));
    std::byte* pages =
        harness.context().arena.allocate_array<std::byte>(static_cast<int64_t>(2 * half) * blocks);
    EXPECT_TRUE(harness.context()
                    .device->stream->fill(pages, 0xFF, 2 * half * static_cast<size_t>(blocks))
                    .ok());
    view_ = {.keys = pages,
             .values = pages + half,
             .block_bytes = 2 * half,
             .block_tokens = kBlock,
             .num_kv_heads = c.kv_heads,
             .head_dim = c.head_dim,
             .format = format};
    for (size_t i = 0; i < lengths_.size(); ++i) {
      queries.push_back(Matrix::normal(lengths_[i], c.heads * c.head_dim, 3 * i + 1, 1.5f));
      keys.push_back(Matrix::normal(lengths_[i], c.kv_heads * c.head_dim, 3 * i + 2));
      values.push_back(Matrix::normal(lengths_[i], c.kv_heads * c.head_dim, 3 * i + 3));
      outputs.emplace_back(lengths_[i], c.heads * c.head_dim);
      for (Matrix* m : {&queries.back(), &keys.back(), &values.back()}) m->round_to(type);
    }
    Random random(77);
    for (int32_t h = 0; h < c.heads; ++h) {
      sinks_.push_back(random.uniform(-2.0f, 3.0f));
      slopes_.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(c.heads)));
    }
    host_variant = {.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                    .sliding_window = c.sliding_window,
                    .soft_cap = c.soft_cap,
                    .sinks = c.sinks ? sinks_.data() : nullptr,
                    .alibi_slopes = c.alibi ? slopes_.data() : nullptr};
    variant_ = host_variant;
    if (c.sinks) variant_.sinks = harness.put(sinks_);
    if (c.alibi) variant_.alibi_slopes = harness.put(slopes_);
  }

  // Appends and attends to the next rows[i] tokens of sequence i.
  void step(const std::vector<int32_t>& rows) {
    const memory::StepArena::Scope scope(harness_.context().arena);
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    Matrix q(total, queries[0].columns), k(total, keys[0].columns), v(total, keys[0].columns);
    std::vector<int32_t> slots;
    std::vector<kernels::SequenceSlice> slices;
    int32_t row = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 0) continue;
      slices.push_back({row, rows[i], done_[i] + rows[i], harness_.input(tables_[i]).data()});
      for (int32_t t = done_[i]; t < done_[i] + rows[i]; ++t, ++row) {
        std::ranges::copy(queries[i].row(t), q.row(row).begin());
        std::ranges::copy(keys[i].row(t), k.row(row).begin());
        std::ranges::copy(values[i].row(t), v.row(row).begin());
        slots.push_back(tables_[i][static_cast<size_t>(t / kBlock)] * kBlock + t % kBlock);
      }
    }
    const auto where = harness_.input(slots);
    const auto cut = harness_.input(std::span<const kernels::SequenceSlice>(slices));
    harness_.send();
    StepContext& context = harness_.context();
    const Tensor out = harness_.blank(total, q.columns, type_);
    ASSERT_TRUE(kv_append(context, {.keys = harness_.put(k, type_),
                                    .values = harness_.put(v, type_),
                                    .slots = where,
                                    .cache = view_})
                    .ok());
    ASSERT_TRUE(
        attention(context, {.queries = harness_.put(q, type_).heads(case_.heads, case_.head_dim),
                            .cache = view_,
                            .sequences = cut,
                            .variant = variant_,
                            .out = out})
            .ok());
    Matrix got = harness_.get(out);
    row = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int32_t t = 0; t < rows[i]; ++t, ++row)
        std::ranges::copy(got.row(row), outputs[i].row(done_[i] + t).begin());
      done_[i] += rows[i];
    }
  }

  std::vector<Matrix> queries, keys, values, outputs;
  kernels::AttentionVariant host_variant;

 private:
  static constexpr int32_t kBlock = 16;
  DeviceHarness& harness_;
  AttentionCase case_;
  DType type_;
  std::vector<int32_t> lengths_;
  std::vector<int32_t> done_;
  std::vector<std::vector<int32_t>> tables_;
  kernels::KvLayerView view_;
  std::vector<float> sinks_;
  std::vector<float> slopes_;
  kernels::AttentionVariant variant_;
};

}  // namespace pelton::ops
