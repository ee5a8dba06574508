#include "runtime/batch_builder.h"

#include "base/check.h"

namespace pelton::runtime {

BatchBuilder::BatchBuilder(int32_t max_tokens, int32_t max_sequences, int32_t block_tokens)
    : block_tokens_(block_tokens) {
  const auto tokens = static_cast<size_t>(max_tokens);
  const auto sequences = static_cast<size_t>(max_sequences);
  token_ids_.reserve(tokens);
  positions_.reserve(tokens);
  slots_.reserve(tokens);
  logit_rows_.reserve(tokens);
  slices_.reserve(sequences);
  logit_ranges_.reserve(sequences);
}

nn::StepBatch BatchBuilder::build(const sched::StepPlan& plan) {
  token_ids_.clear();
  positions_.clear();
  slots_.clear();
  slices_.clear();
  logit_rows_.clear();
  logit_ranges_.clear();
  for (const sched::SequenceStep& step : plan.sequences) {
    const auto first_row = static_cast<int32_t>(token_ids_.size());
    const auto rows = static_cast<int32_t>(step.tokens.size());
    check(rows > 0, "a sequence of a step has at least one row");
    check(static_cast<int64_t>(step.blocks.size()) * block_tokens_ >= step.first_position + rows,
          "a sequence's block table does not cover its rows");
    slices_.push_back({first_row, rows, step.first_position + rows, step.blocks.data()});
    const auto first_logit = static_cast<int32_t>(logit_rows_.size());
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t position = step.first_position + i;
      token_ids_.push_back(step.tokens[static_cast<size_t>(i)]);
      positions_.push_back(position);
      slots_.push_back(step.blocks[static_cast<size_t>(position / block_tokens_)] * block_tokens_ +
                       position % block_tokens_);
      if (step.all_logits || (step.samples && i == rows - 1)) logit_rows_.push_back(first_row + i);
    }
    logit_ranges_.push_back({first_logit, static_cast<int32_t>(logit_rows_.size()) - first_logit});
  }
  return {token_ids_, positions_, slots_, slices_, logit_rows_};
}

}  // namespace pelton::runtime
