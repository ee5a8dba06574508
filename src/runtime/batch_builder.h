// StepPlan -> StepBatch: flattens the plan's sequences into rows, positions, page slots and slices.
// Storage is kept from step to step and has its full size from the beginning, so building does not
// allocate and every array keeps its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "nn/step_batch.h"
#include "runtime/sample_request.h"
#include "sched/step_plan.h"

namespace pelton::runtime {

struct BatchLimits {
  int32_t max_tokens = 0;
  int32_t max_sequences = 0;
  int32_t max_model_len = 0;
  int32_t block_tokens = 0;
};

class BatchBuilder {
 public:
  // In memory of its own; block tables stay where the plan has them.
  explicit BatchBuilder(const BatchLimits& limits);
  // Everything that a forward reads, block tables too, in `storage` (storage_bytes, 64-byte
  // aligned), which must outlive the builder: it is sent to a device as a whole.
  BatchBuilder(const BatchLimits& limits, std::span<std::byte> storage);
  static size_t storage_bytes(const BatchLimits& limits);
  // Of which so many bytes are for the lists of one step's requests (SampleRequest::list_bytes).
  static size_t list_bytes(const BatchLimits& limits);

  // Valid until the next call; refers to the plan's block tables, which must live as long (unless
  // storage was given).
  nn::StepBatch build(const sched::StepPlan& plan);
  // Of the batch built last, all of whose sequences have one row: adds sequences that store and
  // read nothing, up to `rows`, each with a row of logits.
  nn::StepBatch pad(int32_t rows);
  // Names the token that `row` of the batch takes: what the last step sampled in its row
  // `sampled_row`.
  void take_sampled(int32_t row, int32_t sampled_row);
  // Puts what the rows of logits ask for beside the batch; rows of padding ask for nothing. Lists
  // are named by their addresses on the device, `shift` bytes from those in the storage.
  std::span<const ops::SampleRow> put_requests(std::span<const SampleRequest> requests,
                                               ptrdiff_t shift);
  // Bytes of the storage that the last batch uses.
  size_t used_bytes() const { return used_bytes_; }

  // For each of the plan's sequences, the first of its rows among the logits and how many there
  // are.
  struct LogitRange {
    int32_t first = 0;
    int32_t count = 0;
  };
  std::span<const LogitRange> logit_ranges() const { return logit_ranges_; }

 private:
  // An array of fixed capacity within the storage.
  template <typename T>
  struct Array {
    T* data = nullptr;
    size_t size = 0;
    size_t capacity = 0;

    void push_back(const T& value) {
      check(size < capacity, "a step is larger than its limits");
      data[size++] = value;
    }
    std::span<const T> span() const { return {data, size}; }
  };
  struct Arrays {
    Array<int32_t> token_ids;
    Array<int32_t> positions;
    Array<int32_t> slots;
    Array<int32_t> logit_rows;
    Array<kernels::SequenceSlice> slices;
    Array<ops::SampleRow> requests;
    Array<int32_t> tables;   // of the rest only the used part is sent
    Array<std::byte> lists;  // moves up to the end of the tables' used part
  };
  // Lays the arrays out from `base` (null: sizes only) and returns the bytes they take.
  static size_t lay_out(const BatchLimits& limits, bool with_tables, std::byte* base,
                        Arrays* arrays);
  const int32_t* table_of(const sched::SequenceStep& step);
  nn::StepBatch batch();
  template <typename T>
  const T* put_list(std::span<const T> list, ptrdiff_t shift);

  BatchLimits limits_;
  bool copies_tables_;
  std::vector<std::byte> own_storage_;
  Arrays arrays_;
  size_t used_bytes_ = 0;
  std::vector<LogitRange> logit_ranges_;
};

}  // namespace pelton::runtime
