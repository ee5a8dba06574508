#include "runtime/batch_builder.h"

#include <algorithm>
#include <cstring>

namespace pelton::runtime {

size_t BatchBuilder::lay_out(const BatchLimits& limits, bool with_tables, std::byte* base,
                             Arrays* arrays) {
  constexpr size_t kAlignment = 64;
  size_t used = 0;
  const auto place = [&]<typename T>(Array<T>& array, size_t capacity) {
    array.data = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    array.capacity = capacity;
    used += (capacity * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const auto sequences = static_cast<size_t>(limits.max_sequences);
  place(arrays->token_ids, tokens);
  place(arrays->positions, tokens);
  place(arrays->slots, tokens);
  place(arrays->logit_rows, tokens);
  place(arrays->slices, sequences);
  place(arrays->requests, with_tables ? sequences : 0);
  const auto blocks = static_cast<size_t>(
      (int64_t{limits.max_model_len} + limits.block_tokens - 1) / limits.block_tokens);
  place(arrays->tables, with_tables ? sequences * blocks : 0);
  place(arrays->lists, with_tables ? list_bytes(limits) : 0);
  return used;
}

size_t BatchBuilder::list_bytes(const BatchLimits& limits) {
  // Room for a few sequences of full length, and for many of usual ones.
  constexpr size_t kMost = size_t{8} << 20;
  constexpr size_t kShortLists = 4096;
  const size_t one =
      SampleRequest::list_bytes(0, 0, static_cast<size_t>(limits.max_model_len)) + kShortLists;
  return std::max(one, std::min(kMost, static_cast<size_t>(limits.max_sequences) * one));
}

size_t BatchBuilder::storage_bytes(const BatchLimits& limits) {
  Arrays arrays;
  return lay_out(limits, true, nullptr, &arrays);
}

BatchBuilder::BatchBuilder(const BatchLimits& limits) : limits_(limits), copies_tables_(false) {
  Arrays sizes;
  constexpr size_t kSlack = 64;  // for aligning the vector's memory
  own_storage_.resize(lay_out(limits, false, nullptr, &sizes) + kSlack);
  const auto skew = reinterpret_cast<uintptr_t>(own_storage_.data()) % kSlack;
  lay_out(limits, false, own_storage_.data() + (kSlack - skew) % kSlack, &arrays_);
  logit_ranges_.reserve(static_cast<size_t>(limits.max_sequences));
}

BatchBuilder::BatchBuilder(const BatchLimits& limits, std::span<std::byte> storage)
    : limits_(limits), copies_tables_(true) {
  check(storage.size() >= storage_bytes(limits), "the batch's storage is smaller than its limits");
  lay_out(limits, true, storage.data(), &arrays_);
  logit_ranges_.reserve(static_cast<size_t>(limits.max_sequences));
}

const int32_t* BatchBuilder::table_of(const sched::SequenceStep& step) {
  if (!copies_tables_) return step.blocks.data();
  const int32_t* begin = arrays_.tables.data + arrays_.tables.size;
  // Blocks beyond the step's last row are not read.
  const auto rows = static_cast<int32_t>(step.tokens.size());
  const int32_t tokens = step.first_position + rows;
  const int32_t blocks = (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
  for (const int32_t block : step.blocks.first(static_cast<size_t>(blocks)))
    arrays_.tables.push_back(block);
  return begin;
}

nn::StepBatch BatchBuilder::build(const sched::StepPlan& plan) {
  Arrays& a = arrays_;
  a.token_ids.size = a.positions.size = a.slots.size = a.logit_rows.size = 0;
  a.slices.size = a.requests.size = a.tables.size = 0;
  logit_ranges_.clear();
  for (const sched::SequenceStep& step : plan.sequences) {
    const auto first_row = static_cast<int32_t>(a.token_ids.size);
    const auto rows = static_cast<int32_t>(step.tokens.size());
    check(rows > 0, "a sequence of a step has at least one row");
    check(static_cast<int64_t>(step.blocks.size()) * limits_.block_tokens >=
              step.first_position + rows,
          "a sequence's block table does not cover its rows");
    a.slices.push_back({first_row, rows, step.first_position + rows, table_of(step)});
    const auto first_logit = static_cast<int32_t>(a.logit_rows.size);
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t position = step.first_position + i;
      a.token_ids.push_back(step.tokens[static_cast<size_t>(i)]);
      a.positions.push_back(position);
      a.slots.push_back(step.blocks[static_cast<size_t>(position / limits_.block_tokens)] *
                            limits_.block_tokens +
                        position % limits_.block_tokens);
      if (step.all_logits || (step.samples && i == rows - 1)) a.logit_rows.push_back(first_row + i);
    }
    logit_ranges_.push_back({first_logit, static_cast<int32_t>(a.logit_rows.size) - first_logit});
  }
  return batch();
}

nn::StepBatch BatchBuilder::batch() {
  constexpr size_t kTablesAlignment = 2;
  Arrays& a = arrays_;
  const size_t tables =
      (a.tables.size + kTablesAlignment - 1) / kTablesAlignment * kTablesAlignment;
  used_bytes_ = static_cast<size_t>(reinterpret_cast<std::byte*>(a.tables.data + a.tables.size) -
                                    reinterpret_cast<std::byte*>(a.token_ids.data));
  a.lists.data = reinterpret_cast<std::byte*>(a.tables.data + tables);
  a.lists.size = 0;
  return {a.token_ids.span(), a.positions.span(), a.slots.span(), a.slices.span(),
          a.logit_rows.span()};
}

nn::StepBatch BatchBuilder::pad(int32_t rows) {
  constexpr int32_t kNoSlot = -1;
  Arrays& a = arrays_;
  for (auto row = static_cast<int32_t>(a.token_ids.size); row < rows; ++row) {
    a.token_ids.push_back(0);
    a.positions.push_back(0);
    a.slots.push_back(kNoSlot);
    a.slices.push_back({row, 1, 0, a.tables.data});
    a.logit_rows.push_back(row);
  }
  return batch();
}

void BatchBuilder::take_sampled(int32_t row, int32_t sampled_row) {
  check(row >= 0 && static_cast<size_t>(row) < arrays_.token_ids.size, "no such row");
  arrays_.token_ids.data[row] = -1 - sampled_row;
}

// A list's address on the device; null of an empty one.
template <typename T>
const T* BatchBuilder::put_list(std::span<const T> list, ptrdiff_t shift) {
  if (list.empty()) return nullptr;
  Array<std::byte>& lists = arrays_.lists;
  check(list.size_bytes() <= lists.capacity - lists.size, "a step is larger than its limits");
  std::byte* place = lists.data + lists.size;
  std::memcpy(place, list.data(), list.size_bytes());
  lists.size += (list.size_bytes() + alignof(int64_t) - 1) / alignof(int64_t) * alignof(int64_t);
  used_bytes_ = static_cast<size_t>(lists.data + lists.size -
                                    reinterpret_cast<std::byte*>(arrays_.token_ids.data));
  return reinterpret_cast<const T*>(place + shift);
}

std::span<const ops::SampleRow> BatchBuilder::put_requests(std::span<const SampleRequest> requests,
                                                           ptrdiff_t shift) {
  Arrays& a = arrays_;
  check(requests.size() <= a.logit_rows.size, "more requests than rows of logits");
  for (size_t i = 0; i < requests.size(); ++i) {
    const SampleRequest& request = requests[i];
    ops::SampleRow row = request.row;
    row.biases = put_list(request.biases, shift);
    row.num_biases = static_cast<int32_t>(request.biases.size());
    row.suppressed = put_list(request.suppressed, shift);
    row.num_suppressed = static_cast<int32_t>(request.suppressed.size());
    row.history = put_list(request.history, shift);
    row.history_size = static_cast<int32_t>(request.history.size());
    if (request.counts_input) {
      const auto* input =
          reinterpret_cast<const std::byte*>(a.token_ids.data + a.logit_rows.data[i]);
      row.newest = reinterpret_cast<const int32_t*>(input + shift);
    }
    a.requests.push_back(row);
  }
  while (a.requests.size < a.logit_rows.size) a.requests.push_back({.active = false});
  return a.requests.span();
}

}  // namespace pelton::runtime
