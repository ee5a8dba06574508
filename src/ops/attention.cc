#include "ops/attention.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "ops/device_ops.h"

namespace pelton::ops {
namespace {

using kernels::AttentionTask;
using kernels::SequenceSlice;

// Work below which waking the other threads costs more than it saves: multiply-adds.
constexpr int64_t kSerialWork = 200'000;
// Items a thread should have to choose from, so that a busy core's share can be stolen.
constexpr int64_t kItemsPerThread = 4;

// Consecutive positions of one sequence, handled together by one task a KV head (and head group).
struct RowBlock {
  int32_t sequence;
  int32_t first_row;  // within the step
  int32_t first_position;
  int32_t num_positions;
  int32_t chunk_tokens;
  int32_t first_chunk;  // of a split block, in units of chunk_tokens
  int32_t num_chunks;   // 0: not split
  int32_t first_item;   // of a split block
};

int32_t visible_keys(const kernels::AttentionVariant& variant, int32_t position) {
  const int32_t context = position + 1;
  return variant.sliding_window > 0 ? std::min(context, variant.sliding_window) : context;
}

// How the step is cut. The cut never changes a row's bits, so it may depend on threads and batch.
struct Plan {
  int64_t heads;
  int64_t kv_heads;
  int64_t group;            // query heads a KV head
  int64_t heads_per_task;   // <= kMaxQueryRows
  int64_t tasks_per_block;  // kv heads * head groups
  int64_t state_floats;     // of one head
  int64_t max_split;        // blocks that may be split
  int threads;
};

Plan make_plan(const StepContext& context, const AttentionArgs& args) {
  Plan plan{};
  plan.heads = args.queries.shape[1];
  plan.kv_heads = args.cache.num_kv_heads;
  plan.group = plan.heads / plan.kv_heads;
  plan.heads_per_task = std::min<int64_t>(plan.group, kernels::kMaxQueryRows);
  plan.tasks_per_block =
      plan.kv_heads * ((plan.group + plan.heads_per_task - 1) / plan.heads_per_task);
  plan.state_floats = kernels::attention_state_floats(args.cache.head_dim);
  plan.threads = context.pool.size();
  // A block is split when it holds more than 1 / (8 threads) of the work of a KV head's worth, so
  // at most this many are.
  plan.max_split = std::min<int64_t>(args.queries.num_rows(), 8 * plan.threads / plan.kv_heads + 1);
  return plan;
}

// Activations are f32, or bf16 on a device.
bool has_type(const StepContext& context, const Tensor& t) {
  return t.dtype == DType::kF32 || (t.dtype == DType::kBF16 && context.device != nullptr);
}

void check_args(const StepContext& context, const AttentionArgs& args) {
  const bool planning = context.planning();
  const kernels::KvLayerView& cache = args.cache;
  check(args.queries.rank == 3 && has_type(context, args.queries),
        "attention needs queries [tokens, heads, head_dim] of an activation type");
  check(cache.num_kv_heads > 0 && args.queries.shape[1] % cache.num_kv_heads == 0,
        "heads must be a multiple of the KV heads");
  check(cache.head_dim == args.queries.shape[2] && cache.head_dim % 8 == 0,
        "head_dim must be the pages' and a multiple of 8");
  check(cache.block_tokens >= kernels::kKeyGroup &&
            std::has_single_bit(static_cast<uint32_t>(cache.block_tokens)),
        "block_tokens must be a power of two of at least 16");
  check(has_type(context, args.out) && args.out.num_rows() == args.queries.num_rows() &&
            args.out.row_elements() == args.queries.row_elements(),
        "attention output does not match the queries");
  int64_t rows = 0;
  for (const SequenceSlice& s : args.sequences) {
    const bool fits =
        s.num_rows <= s.context_len || (s.context_len == 0 && context.device != nullptr);
    check(s.num_rows >= 0 && fits && s.first_row >= 0 &&
              int64_t{s.first_row} + s.num_rows <= args.queries.num_rows(),
          "a sequence's rows lie outside the step");
    check(planning || s.num_rows == 0 || s.blocks != nullptr, "a sequence has no block table");
    rows += s.num_rows;
  }
  check(planning || rows == args.queries.num_rows(), "sequences must cover every row once");
}

// Cuts the rows into blocks of at most `height` positions that share a chunk length.
int64_t cut_rows(const AttentionArgs& args, int32_t height, RowBlock* blocks) {
  int64_t count = 0;
  for (size_t i = 0; i < args.sequences.size(); ++i) {
    const SequenceSlice& s = args.sequences[i];
    const int32_t first_position = s.context_len - s.num_rows;
    for (int32_t row = 0; row < s.num_rows;) {
      RowBlock b{};
      b.sequence = static_cast<int32_t>(i);
      b.first_row = s.first_row + row;
      b.first_position = first_position + row;
      b.chunk_tokens = kernels::attention_chunk(visible_keys(args.variant, b.first_position));
      const int32_t limit = std::min(height, s.num_rows - row);
      b.num_positions = 1;
      while (b.num_positions < limit &&
             kernels::attention_chunk(visible_keys(
                 args.variant, b.first_position + b.num_positions)) == b.chunk_tokens) {
        ++b.num_positions;
      }
      row += b.num_positions;
      blocks[count++] = b;
    }
  }
  return count;
}

// Splits single-position blocks that hold too much of the work; they move to the front. Returns
// their number; `items` gets the number of their tasks.
int64_t split_blocks(const AttentionArgs& args, const Plan& plan, std::span<RowBlock> blocks,
                     int64_t* items) {
  *items = 0;
  if (plan.threads == 1) return 0;
  int64_t total = 0;
  for (const RowBlock& b : blocks) {
    total += int64_t{visible_keys(args.variant, b.first_position)} * b.num_positions;
  }
  int64_t count = 0;
  for (RowBlock& b : blocks) {
    const int64_t visible = visible_keys(args.variant, b.first_position);
    if (b.num_positions != 1 || visible <= b.chunk_tokens ||
        visible * 8 * plan.threads < total * plan.kv_heads || count == plan.max_split) {
      continue;
    }
    const int32_t lowest = b.first_position + 1 - static_cast<int32_t>(visible);
    b.first_chunk = lowest / b.chunk_tokens;
    b.num_chunks = b.first_position / b.chunk_tokens - b.first_chunk + 1;
    b.first_item = static_cast<int32_t>(*items);
    *items += b.num_chunks * plan.tasks_per_block;
    std::swap(b, blocks[static_cast<size_t>(count++)]);
  }
  return count;
}

struct Scratch {
  float* threads;  // [threads][attention_scratch_floats]
  RowBlock* blocks;
  float* states;  // [split blocks][kMaxChunks][heads][state_floats]
};

Scratch take_scratch(StepContext& context, const AttentionArgs& args, const Plan& plan) {
  Scratch scratch;
  scratch.threads = context.arena.allocate_array<float>(
      plan.threads * kernels::attention_scratch_floats(args.cache.head_dim));
  scratch.blocks = context.arena.allocate_array<RowBlock>(args.queries.num_rows());
  scratch.states = plan.threads == 1
                       ? nullptr
                       : context.arena.allocate_array<float>(plan.max_split * kernels::kMaxChunks *
                                                             plan.heads * plan.state_floats);
  return scratch;
}

// The task of one block and one of its tasks_per_block head groups.
AttentionTask make_task(const AttentionArgs& args, const Plan& plan, const RowBlock& block,
                        int64_t index) {
  const int64_t groups = plan.tasks_per_block / plan.kv_heads;
  const int64_t kv_head = index / groups;
  const int64_t skip = index % groups * plan.heads_per_task;
  return {.queries = args.queries.row_f32(block.first_row),
          .query_stride = args.queries.row_stride,
          .out = args.out.row_f32(block.first_row),
          .out_stride = args.out.row_stride,
          .cache = args.cache,
          .blocks = args.sequences[static_cast<size_t>(block.sequence)].blocks,
          .variant = args.variant,
          .first_position = block.first_position,
          .num_positions = block.num_positions,
          .first_head = static_cast<int32_t>(kv_head * plan.group + skip),
          .num_heads = static_cast<int32_t>(std::min(plan.heads_per_task, plan.group - skip)),
          .kv_head = static_cast<int32_t>(kv_head),
          .chunk_tokens = block.chunk_tokens};
}

// States of a split block: [tasks][chunks][heads of the task][state_floats], tasks at their first
// head.
float* block_states(const Plan& plan, const Scratch& scratch, int64_t block, const RowBlock& b,
                    const AttentionTask& task) {
  return scratch.states +
         (block * kernels::kMaxChunks * plan.heads + int64_t{task.first_head} * b.num_chunks) *
             plan.state_floats;
}

// One call's tasks: first the chunks of the split blocks, then the whole blocks.
struct Tasks {
  StepContext& context;
  const AttentionArgs& args;
  const Plan& plan;
  const Scratch& scratch;
  std::span<const RowBlock> blocks;
  int64_t split = 0;        // the first so many blocks are split,
  int64_t split_items = 0;  // into so many tasks

  int64_t count() const {
    return split_items + (std::ssize(blocks) - split) * plan.tasks_per_block;
  }
  void run(int64_t item, int thread) const {
    float* own = scratch.threads + thread * kernels::attention_scratch_floats(args.cache.head_dim);
    if (item >= split_items) {
      const int64_t rest = item - split_items;
      const RowBlock& b = blocks[static_cast<size_t>(split + rest / plan.tasks_per_block)];
      context.cpu.attention.attend(make_task(args, plan, b, rest % plan.tasks_per_block), own);
      return;
    }
    int64_t block = split - 1;
    while (blocks[static_cast<size_t>(block)].first_item > item) --block;
    const RowBlock& b = blocks[static_cast<size_t>(block)];
    const int64_t index = item - b.first_item;
    const int64_t chunk = index % b.num_chunks;
    AttentionTask task = make_task(args, plan, b, index / b.num_chunks);
    task.state =
        block_states(plan, scratch, block, b, task) + chunk * task.num_heads * plan.state_floats;
    task.chunk_begin = static_cast<int32_t>(b.first_chunk + chunk) * b.chunk_tokens;
    context.cpu.attention.attend(task, own);
  }
  // Merges the chunks of one split block's head group, in order.
  void merge(int64_t item) const {
    const int64_t block = item / plan.tasks_per_block;
    const RowBlock& b = blocks[static_cast<size_t>(block)];
    const AttentionTask task = make_task(args, plan, b, item % plan.tasks_per_block);
    context.cpu.attention.merge(
        {.states = block_states(plan, scratch, block, b, task),
         .num_chunks = b.num_chunks,
         .num_heads = task.num_heads,
         .head_dim = args.cache.head_dim,
         .sinks = args.variant.sinks != nullptr ? args.variant.sinks + task.first_head : nullptr,
         .out = task.out + int64_t{task.first_head} * args.cache.head_dim});
  }
  // Multiply-adds of the whole call.
  int64_t work() const {
    int64_t keys = 0;
    for (const RowBlock& b : blocks) {
      keys += int64_t{b.num_positions} * visible_keys(args.variant, b.first_position);
    }
    return keys * plan.heads * args.cache.head_dim * 2;
  }
};

}  // namespace

Status kv_append(StepContext& context, const KvAppendArgs& args) {
  const kernels::KvLayerView& cache = args.cache;
  const int64_t rows = args.keys.num_rows();
  const int64_t elements = int64_t{cache.num_kv_heads} * cache.head_dim;
  check(args.keys.row_elements() == elements && args.values.row_elements() == elements &&
            args.values.num_rows() == rows && std::ssize(args.slots) == rows,
        "keys, values and slots do not match the pages");
  check(has_type(context, args.keys) && has_type(context, args.values),
        "keys and values must be of an activation type");
  if (context.planning()) return {};
  if (context.device != nullptr) return on_device::kv_append(context, args);
  const auto append = [&](int64_t t) {
    const int32_t slot = args.slots[static_cast<size_t>(t)];
    check(slot >= 0, "negative page slot");
    context.cpu.attention.append({.keys = args.keys.row_f32(t),
                                  .values = args.values.row_f32(t),
                                  .cache = cache,
                                  .slot = slot});
  };
  constexpr int64_t kSerialElements = 8192;
  constexpr int64_t kRowsPerItem = 16;  // a group of keys shares cache lines: one thread writes it
  if (rows * elements < kSerialElements) {
    for (int64_t t = 0; t < rows; ++t) append(t);
    return {};
  }
  context.pool.parallel_for((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item, int) {
    const int64_t end = std::min(rows, (item + 1) * kRowsPerItem);
    for (int64_t t = item * kRowsPerItem; t < end; ++t) append(t);
  });
  return {};
}

Status prepare_attention(StepContext& context, const PrepareArgs& args) {
  const kernels::KvLayerView& cache = args.cache;
  const int64_t d = cache.head_dim;
  const int64_t query_size = args.heads * d;
  const int64_t kv_size = cache.num_kv_heads * d;
  check(args.qkv.rank == 2 && args.qkv.row_elements() == query_size + 2 * kv_size,
        "queries, keys and values do not fill the projection");
  if (context.device != nullptr && on_device::fuses_preparation(context, args)) {
    check(std::ssize(args.slots) == args.qkv.num_rows(), "one slot a row");
    return context.planning() ? Status() : on_device::prepare_attention(context, args);
  }
  const Tensor query = args.qkv.columns(0, query_size).heads(args.heads, d);
  const Tensor key = args.qkv.columns(query_size, kv_size).heads(cache.num_kv_heads, d);
  const Tensor value = args.qkv.columns(query_size + kv_size, kv_size).heads(cache.num_kv_heads, d);
  const auto normalize = [&](const Tensor& x, const float* weight, float eps) {
    return rms_norm(context, {.x = x, .weight = weight, .eps = eps, .out = x});
  };
  if (args.query_norm != nullptr) {
    if (Status s = normalize(query, args.query_norm, args.query_eps); !s.ok()) return s;
  }
  if (args.key_norm != nullptr) {
    if (Status s = normalize(key, args.key_norm, args.key_eps); !s.ok()) return s;
  }
  if (args.angles != nullptr) {
    for (const Tensor* x : {&query, &key}) {
      if (Status s = rope(context, *x, *args.angles, args.pairing); !s.ok()) return s;
    }
  }
  return kv_append(context, {.keys = key, .values = value, .slots = args.slots, .cache = cache});
}

Status attention(StepContext& context, const AttentionArgs& args) {
  check_args(context, args);
  const int64_t rows = args.queries.num_rows();
  if (rows == 0) return {};
  if (context.device != nullptr) return on_device::attention(context, args);
  const Plan plan = make_plan(context, args);
  const memory::StepArena::Scope scope(context.arena);
  const Scratch scratch = take_scratch(context, args, plan);
  if (context.planning()) return {};

  // As many positions a task as share a widened tile well, but enough tasks for all threads.
  const int64_t tallest = std::max<int64_t>(1, kernels::kMaxQueryRows / plan.heads_per_task);
  const int64_t wanted = rows * plan.tasks_per_block / (kItemsPerThread * plan.threads);
  const auto height = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, tallest));
  const std::span<RowBlock> blocks(scratch.blocks,
                                   static_cast<size_t>(cut_rows(args, height, scratch.blocks)));
  Tasks tasks{context, args, plan, scratch, blocks};
  tasks.split = split_blocks(args, plan, blocks, &tasks.split_items);
  if (tasks.work() < kSerialWork) {
    for (int64_t i = 0; i < tasks.count(); ++i) tasks.run(i, 0);
  } else {
    context.pool.parallel_for(tasks.count(), [&](int64_t i, int thread) { tasks.run(i, thread); });
  }

  const int64_t merges = tasks.split * plan.tasks_per_block;
  constexpr int64_t kSerialMerges = 64;
  if (merges <= kSerialMerges) {
    for (int64_t i = 0; i < merges; ++i) tasks.merge(i);
  } else {
    context.pool.parallel_for(merges, [&](int64_t i, int /*thread*/) { tasks.merge(i); });
  }
  return {};
}

}  // namespace pelton::ops
