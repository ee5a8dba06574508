// Attention in double over keys and values as plain arrays: the oracle of the tests, never chosen
// to run a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params/attention.h"

namespace pelton::kernels::ref {

struct AttentionQuery {
  std::span<const float> query;  // [head_dim]
  const float* keys = nullptr;   // of the query's KV head: token t at keys + t * stride
  const float* values = nullptr;
  int64_t stride = 0;
  int32_t position = 0;
  int32_t head = 0;
};
// One head's output [head_dim] and, for error bounds, `magnitude`: the same sum over |values|.
struct AttentionAnswer {
  std::vector<double> out;
  std::vector<double> magnitude;
  double largest_product =
      0;  // of |query| . |key| * scale over the keys: what score errors scale with
};
AttentionAnswer attention(const AttentionQuery& q, const AttentionVariant& variant);

// What a page of this format gives back for `values` [head_dim] of one token and head.
void round_to_page(KvFormat format, std::span<float> values);

}  // namespace pelton::kernels::ref
