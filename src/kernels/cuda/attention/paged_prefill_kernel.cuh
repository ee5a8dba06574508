// The kernel behind paged_prefill.h; see there for what it computes and how the work is cut.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/paged_prefill.h"
#include "kernels/cuda/attention/paged_prefill_items.cuh"
#include "kernels/cuda/attention/paged_prefill_softmax.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/common/wgmma_f16.cuh"

namespace pelton::kernels::cuda {

template <PageType type, int head_dim>
struct PrefillShape {
  static constexpr bool kIsFp8 = type == PageType::kFp8;
  static constexpr int kThreads = 384;  // a producer and two consumer warpgroups
  static constexpr int kConsumers = 256;
  static constexpr int kKeys = head_dim == 256 ? 64 : 128;  // of a tile
  static constexpr int kBoxes = head_dim / 64;              // 128-byte boxes along the head
  // Tiles of keys and values: eight rows of one box after another, then the next eight rows.
  static constexpr int kGroupBytes = kBoxes * 1024;
  static constexpr int kTileBytes = kKeys / 8 * kGroupBytes;
  static constexpr int kStages = head_dim == 64 ? 3 : 2;  // of keys, and as many of values
  static constexpr int kQBoxBytes = kPrefillRows * 128;
  static constexpr int kQBytes = kBoxes * kQBoxBytes;
  static constexpr int kQSlots = head_dim == 256 ? 1 : 2;
  // FP8 pages: codes as the copy engine brings them, a ring of pieces for each converting warp.
  static constexpr int kPieceKeys = kKeys / 8;  // two pieces a warp and tile
  static constexpr int kPieceBytes = kPieceKeys * head_dim;
  static constexpr int kPieces = kIsFp8 ? 3 : 0;  // of a warp under way
  static constexpr int kBarriers = 4 * kStages + 2 * kQSlots + 4 * kPieces;
  static constexpr int kPiecesAt = kQSlots * kQBytes + 2 * kStages * kTileBytes;
  static constexpr int kTableAt = kPiecesAt + 4 * kPieces * kPieceBytes;
  static constexpr int kBarriersAt = kTableAt + (kPrefillMaxSequences + 2) * 4;
  static constexpr int kItemsAt = kBarriersAt + kBarriers * 8;
  static constexpr int kSharedBytes =
      1024 + kItemsAt + kQSlots * static_cast<int>(sizeof(PrefillItem));
  // Converting pages takes registers. Together no more than the block began with: 3 * 168.
  static constexpr int kProducerRegisters = kIsFp8 ? 72 : 40;
  static constexpr int kConsumerRegisters = kIsFp8 ? 216 : 232;
  // Weights in fp16 count from 2^14 at the row's maximum: smaller ones keep their bits for longer.
  static constexpr int kWeightShift = kIsFp8 ? 14 : 0;
};

// Addresses in shared memory.
template <typename S>
struct PrefillMemory {
  uint32_t base;
  std::byte* pointer;  // the same

  __device__ explicit PrefillMemory(std::byte* shared)
      : base((shared_address(shared) + 1023) & ~1023u),
        pointer(shared + (base - shared_address(shared))) {}
  __device__ uint32_t q(int slot) const { return base + slot * S::kQBytes; }
  __device__ uint32_t keys(int stage) const {
    return base + S::kQSlots * S::kQBytes + stage * S::kTileBytes;
  }
  __device__ uint32_t values(int stage) const { return keys(S::kStages + stage); }
  __device__ uint32_t barrier(int i) const { return base + S::kBarriersAt + 8 * i; }
  __device__ uint32_t keys_full(int i) const { return barrier(i); }
  __device__ uint32_t keys_empty(int i) const { return barrier(S::kStages + i); }
  __device__ uint32_t values_full(int i) const { return barrier(2 * S::kStages + i); }
  __device__ uint32_t values_empty(int i) const { return barrier(3 * S::kStages + i); }
  __device__ uint32_t q_full(int i) const { return barrier(4 * S::kStages + i); }
  __device__ uint32_t q_empty(int i) const { return barrier(4 * S::kStages + S::kQSlots + i); }
  __device__ uint32_t piece(int warp, int i) const {
    return base + S::kPiecesAt + (warp * S::kPieces + i) * S::kPieceBytes;
  }
  __device__ uint32_t piece_full(int warp, int i) const {
    return barrier(4 * S::kStages + 2 * S::kQSlots + warp * S::kPieces + i);
  }
  __device__ int32_t* table() const { return reinterpret_cast<int32_t*>(pointer + S::kTableAt); }
  __device__ PrefillItem* items() const {
    return reinterpret_cast<PrefillItem*>(pointer + S::kItemsAt);
  }
};

// A place in a ring and the parity of its round.
template <int depth>
struct RingPlace {
  int at = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++at == depth) {
      at = 0;
      parity ^= 1;
    }
  }
};

// The copy engine's side for BF16 pages: one warp, a lane a box of keys.
template <PageType type, int head_dim>
struct PageLoader {
  using S = PrefillShape<type, head_dim>;
  const PagedPrefillParams& p;
  const PrefillMemory<S>& memory;
  int lane;
  int row_boxes;
  uint64_t policy;
  RingPlace<S::kStages> key_place;
  RingPlace<S::kStages> value_place;

  __device__ PageLoader(const PagedPrefillParams& params, const PrefillMemory<S>& m, int l)
      : p(params),
        memory(m),
        lane(l),
        row_boxes(S::kKeys / params.box_keys),
        policy(policy_evict_normal()) {}

  __device__ __forceinline__ int block_of(const PrefillItem& item, const int32_t* blocks,
                                          int tile) const {
    const int key = tile * S::kKeys + lane * p.box_keys;
    return tile >= 0 && lane < row_boxes && key < item.context ? blocks[key / p.block_tokens] : 0;
  }

  __device__ __forceinline__ void load(const PrefillItem& item, const CUtensorMap* map, uint32_t to,
                                       uint32_t full, int tile, int block) const {
    const int first_key = tile * S::kKeys;
    const int boxes = min(row_boxes, (item.context - first_key + p.box_keys - 1) / p.box_keys);
    if (lane == 0) barrier_arrive_expect(full, boxes * p.box_keys * 2 * head_dim);
    __syncwarp();
    if (lane < boxes) {
      const int key = first_key + lane * p.box_keys;
      const int row = item.kv_head * p.block_tokens + key % p.block_tokens;
      tile_copy_5d(to + lane * p.box_keys * 2 * head_dim, map, 0, 0, 0, row / 8, block, full,
                   policy);
    }
  }
  __device__ __forceinline__ void load_keys(const PrefillItem& item, int tile, int block) {
    barrier_wait(memory.keys_empty(key_place.at), key_place.parity ^ 1);
    load(item, &p.key_map, memory.keys(key_place.at), memory.keys_full(key_place.at), tile, block);
    key_place.advance();
  }
  __device__ __forceinline__ void load_values(const PrefillItem& item, int tile, int block) {
    barrier_wait(memory.values_empty(value_place.at), value_place.parity ^ 1);
    load(item, &p.value_map, memory.values(value_place.at), memory.values_full(value_place.at),
         tile, block);
    value_place.advance();
  }

  // Keys run one tile ahead of values, as the consumers take them.
  __device__ __forceinline__ void load_item(const PrefillItem& item) {
    const int32_t* blocks = block_table(p, item.sequence);
    const int first = item.template first_tile<S::kKeys>(p.window);
    int tile = item.template last_tile<S::kKeys>();
    int block = block_of(item, blocks, tile);
    int next_block = block_of(item, blocks, tile - 1);
    load_keys(item, tile, block);
    for (; tile > first; --tile) {
      const int after = block_of(item, blocks, tile - 2);
      load_keys(item, tile - 1, next_block);
      load_values(item, tile, block);
      block = next_block;
      next_block = after;
    }
    load_values(item, tile, block);
  }
};

// Draws the next item, announces it and asks for its queries. One warp.
template <PageType type, int head_dim>
__device__ __forceinline__ PrefillItem
draw_item(const PagedPrefillParams& p, const PrefillMemory<PrefillShape<type, head_dim>>& memory,
          const RingPlace<PrefillShape<type, head_dim>::kQSlots>& slot, int lane) {
  using S = PrefillShape<type, head_dim>;
  unsigned drawn = 0;
  if (lane == 0) drawn = atomicAdd(p.counter, 1u);
  const PrefillItem item = prefill_item(p, memory.table(), __shfl_sync(~0u, drawn, 0));
  barrier_wait(memory.q_empty(slot.at), slot.parity ^ 1);
  if (lane == 0) {
    memory.items()[slot.at] = item;
    const uint32_t full = memory.q_full(slot.at);
    if (item.sequence < 0) {
      barrier_arrive(full);
    } else {
      barrier_arrive_expect(full, p.tile_tokens * p.group * 128 * S::kBoxes);
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box) {
        tile_copy_3d(memory.q(slot.at) + box * S::kQBoxBytes, &p.q_map, 64 * box,
                     item.kv_head * p.group, item.first_row, full, policy_evict_normal());
      }
    }
  }
  __syncwarp();
  return item;
}

// FP8 pages: each warp of the group has the copy engine bring its pieces of a tile and writes what
// the codes stand for as fp16, scales apart. A lane takes the same 16 codes of every kStepKeys-th
// key of a piece.
template <PageType type, int head_dim>
struct PageConverter {
  using S = PrefillShape<type, head_dim>;
  static constexpr int kRowChunks = head_dim / 16;  // of 16 codes
  static constexpr int kStepKeys = 32 / kRowChunks;
  static constexpr int kChunks = S::kPieceKeys / kStepKeys;
  // Where in the pages the pieces of 16 tiles begin, counted downwards from `tile`: lane
  // 2 * tiles + piece.
  struct Places {
    int tile;
    int64_t offset;
  };
  const PagedPrefillParams& p;
  const PrefillMemory<S>& memory;
  int warp;
  int lane;
  uint64_t policy;
  uint32_t offsets[2];  // where its two runs of eight lie, in the order of writing
  bool swaps;           // writes the second run first: neighbouring boxes keep banks apart
  RingPlace<S::kPieces> piece_place;
  RingPlace<S::kStages> key_place;
  RingPlace<S::kStages> value_place;

  __device__ PageConverter(const PagedPrefillParams& params, const PrefillMemory<S>& m, int thread)
      : p(params), memory(m), warp(thread / 32), lane(thread % 32), policy(policy_evict_normal()) {
    const int key = lane / kRowChunks;
    const int chunk = lane % kRowChunks;
    swaps = (chunk / 4 & 1) != 0;
    offsets[0] = chunk / 4 * 1024 + swizzled(key, 2 * (chunk % 4) + (swaps ? 1 : 0));
    offsets[1] = chunk / 4 * 1024 + swizzled(key, 2 * (chunk % 4) + (swaps ? 0 : 1));
  }

  // The tiles of an item in the order of PageLoader::load_item.
  struct Steps {
    int last;   // tile
    int count;  // a tile of keys or of values each

    __device__ bool is_key(int step) const {
      return step == 0 || (step % 2 == 1 && step < count - 1);
    }
    __device__ int tile(int step) const {
      if (is_key(step)) return last - (step + 1) / 2;
      return last - (step >= count - 1 ? count / 2 - 1 : step / 2 - 1);
    }
  };

  __device__ __forceinline__ int first_key(int tile, int piece) const {
    return tile * S::kKeys + (piece * 4 + warp) * S::kPieceKeys;
  }

  // Asks for a piece. Pieces past the context arrive at once, with nothing in them.
  __device__ __forceinline__ void ask(const PrefillItem& item, const int32_t* blocks,
                                      Places& places, const std::byte* pages, int tile, int piece,
                                      int place) const {
    if (places.tile - tile >= 16) {
      places.tile = tile;
      const int key = first_key(tile - lane / 2, lane % 2);
      const int block = max(key, 0) / p.block_tokens;
      const int64_t row = static_cast<int64_t>(item.kv_head) * p.block_tokens + key -
                          static_cast<int64_t>(block) * p.block_tokens;
      places.offset = key >= 0 && key < item.context
                          ? static_cast<int64_t>(blocks[block]) * p.block_stride + row * head_dim
                          : 0;
    }
    const int64_t offset = __shfl_sync(~0u, places.offset, 2 * (places.tile - tile) + piece);
    if (lane == 0) {
      const uint32_t full = memory.piece_full(warp, place);
      if (first_key(tile, piece) < item.context) {
        barrier_arrive_expect(full, S::kPieceBytes);
        bulk_copy(memory.piece(warp, place), pages + offset, S::kPieceBytes, full, policy);
      } else {
        barrier_arrive(full);
      }
    }
    __syncwarp();
  }

  // The piece at the ring's place into its rows of the tile at `to`; keys past the context are 0.
  __device__ __forceinline__ void convert(uint32_t to, int valid) const {
    const uint32_t from = memory.piece(warp, piece_place.at) + 16 * lane;
    uint4 codes[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) codes[i] = load_shared_16(from + 512 * i);
    if (valid < S::kPieceKeys) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        if (lane / kRowChunks + i * kStepKeys >= valid) codes[i] = make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int row = i * kStepKeys % 8;  // an exclusive or of the swizzle's: lanes fill lower bits
      const uint32_t at = to + i * kStepKeys / 8 * S::kGroupBytes + 128 * row;
      store_run((at + offsets[0]) ^ (16 * row), swaps ? codes[i].z : codes[i].x,
                swaps ? codes[i].w : codes[i].y);
      store_run((at + offsets[1]) ^ (16 * row), swaps ? codes[i].x : codes[i].z,
                swaps ? codes[i].y : codes[i].w);
    }
  }
  static __device__ __forceinline__ void store_run(uint32_t to, uint32_t a, uint32_t b) {
    const uint2 low = e4m3_as_f16(a);
    const uint2 high = e4m3_as_f16(b);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(low.x), "r"(low.y),
                 "r"(high.x), "r"(high.y)
                 : "memory");
  }

  __device__ __forceinline__ void load_item(const PrefillItem& item) {
    const int32_t* blocks = block_table(p, item.sequence);
    Steps steps;
    steps.last = item.template last_tile<S::kKeys>();
    steps.count = 2 * (steps.last - item.template first_tile<S::kKeys>(p.window) + 1);
    Places key_places = {steps.last + 16, 0};
    Places value_places = {steps.last + 16, 0};
    const auto ask_for = [&](int number, int place) {
      const int step = number / 2;
      if (step >= steps.count) return;
      if (steps.is_key(step)) {
        ask(item, blocks, key_places, p.keys, steps.tile(step), number % 2, place);
      } else {
        ask(item, blocks, value_places, p.values, steps.tile(step), number % 2, place);
      }
    };
    for (int i = 0; i < S::kPieces; ++i) {
      const int place = piece_place.at + i;
      ask_for(i, place >= S::kPieces ? place - S::kPieces : place);
    }
    for (int step = 0; step < steps.count; ++step) {
      const bool is_key = steps.is_key(step);
      const int place = is_key ? key_place.at : value_place.at;
      const uint32_t parity = is_key ? key_place.parity : value_place.parity;
      const uint32_t to = is_key ? memory.keys(place) : memory.values(place);
      barrier_wait(is_key ? memory.keys_empty(place) : memory.values_empty(place), parity ^ 1);
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        barrier_wait(memory.piece_full(warp, piece_place.at), piece_place.parity);
        convert(to + (piece * 4 + warp) * (S::kPieceKeys / 8) * S::kGroupBytes,
                item.context - first_key(steps.tile(step), piece));
        __syncwarp();
        ask_for(2 * step + piece + S::kPieces, piece_place.at);
        piece_place.advance();
      }
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) barrier_arrive(is_key ? memory.keys_full(place) : memory.values_full(place));
      if (is_key) {
        key_place.advance();
      } else {
        value_place.advance();
      }
    }
  }
};

// The producer warpgroup: one warp of it for BF16 pages, all four for FP8.
template <PageType type, int head_dim>
__device__ __forceinline__ void produce_items(
    const PagedPrefillParams& p, const PrefillMemory<PrefillShape<type, head_dim>>& memory) {
  using S = PrefillShape<type, head_dim>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  RingPlace<S::kQSlots> slot;
  if constexpr (S::kIsFp8) {
    PageConverter<type, head_dim> converter(p, memory, thread);
    while (true) {
      if (thread < 32) draw_item<type, head_dim>(p, memory, slot, lane);
      named_sync(5, 128);
      const PrefillItem item = memory.items()[slot.at];
      if (item.sequence < 0) return;
      converter.load_item(item);
      slot.advance();
    }
  } else {
    if (thread >= 32) return;
    PageLoader<type, head_dim> loader(p, memory, lane);
    while (true) {
      const PrefillItem item = draw_item<type, head_dim>(p, memory, slot, lane);
      if (item.sequence < 0) return;
      loader.load_item(item);
      slot.advance();
    }
  }
}

// One consumer warpgroup: 64 rows of each item.
template <PageType type, int head_dim>
struct RowConsumer {
  using S = PrefillShape<type, head_dim>;
  const PagedPrefillParams& p;
  const PrefillMemory<S>& memory;
  int group;  // of warps: 0 or 1
  int thread;
  int lane;
  RingPlace<S::kStages> key_place;
  RingPlace<S::kStages> value_place;
  RingPlace<S::kQSlots> slot;

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) barrier_arrive(barrier);
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[S::kKeys / 2]) const {
    const uint32_t q = memory.q(slot.at) + group * 64 * 128;
    const uint32_t keys = memory.keys(key_place.at);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      const uint64_t a = operand_along_k(q + box * S::kQBoxBytes);
      const uint64_t b = operand_along_k(keys + box * 1024, S::kGroupBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (S::kIsFp8) {
          wgmma_f16(scores, a + 2 * i, b + 2 * i, box + i > 0);
        } else {
          wgmma_bf16(scores, a + 2 * i, b + 2 * i, box + i > 0);
        }
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_values(float (&out)[head_dim / 2],
                                                  const uint32_t (&weights)[S::kKeys / 16][4],
                                                  bool accumulate) const {
    const uint64_t b = operand_along_n(memory.values(value_place.at), 1024, S::kGroupBytes);
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; ++i) {
      const uint64_t rows = b + (2 * S::kGroupBytes >> 4) * i;
      if constexpr (S::kIsFp8) {
        wgmma_f16<true>(out, weights[i], rows, accumulate || i > 0);
      } else {
        wgmma_bf16<true>(out, weights[i], rows, accumulate || i > 0);
      }
    }
    wgmma_commit();
  }

  // This group's queries in place as fp16, each row times a power of two, which its scores are
  // freed of. A lane takes half of one of its warp's rows.
  __device__ __forceinline__ void convert_queries(RowPair& rows) const {
    constexpr int kChunks = head_dim / 16;  // of 16 bytes in half a row
    const int row = 64 * group + 16 * (thread / 32) + lane % 16;
    const auto chunk_at = [&](int i) {
      const int chunk = lane / 16 * kChunks + i;
      return memory.q(slot.at) + chunk / 8 * S::kQBoxBytes + swizzled(row, chunk % 8);
    };
    uint32_t highest = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const uint4 v = load_shared_16(chunk_at(i));
      highest = larger_bf16x2(larger_bf16x2(highest, v.x), v.y);
      highest = larger_bf16x2(larger_bf16x2(highest, v.z), v.w);
    }
    highest = max(highest & 0xffff, highest >> 16);
    highest = max(highest, __shfl_xor_sync(~0u, highest, 16));
    const int shift = f16_shift(highest);
    const float scale = two_to(shift);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const uint4 v = load_shared_16(chunk_at(i));
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(chunk_at(i)),
                   "r"(scaled_f16x2(v.x, scale)), "r"(scaled_f16x2(v.y, scale)),
                   "r"(scaled_f16x2(v.z, scale)), "r"(scaled_f16x2(v.w, scale))
                   : "memory");
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.multiplier[h] *= __shfl_sync(~0u, two_to(-shift), lane / 4 + 8 * h);
    }
    fence_async_proxy();
    named_sync(3 + group, 128);
  }

  // BF16 pages: slots past the context hold anything, but weight 0 of them must count 0. Both
  // warpgroups write the same zeros.
  __device__ __forceinline__ void clear_values(const PrefillItem& item, int tile) const {
    const int valid = item.context - tile * S::kKeys;
    if (S::kIsFp8 || valid >= S::kKeys) return;
    constexpr int kChunks = S::kBoxes * 8;  // of 16 bytes in a row
    for (int i = thread; i < (S::kKeys - valid) * kChunks; i += 128) {
      const int key = valid + i / kChunks;
      const uint32_t at = memory.values(value_place.at) + key / 8 * S::kGroupBytes + key % 8 * 128 +
                          i % kChunks / 8 * 1024 + i % 8 * 16;
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    fence_async_proxy();
    named_sync(3 + group, 128);
  }

  __device__ __forceinline__ bool is_masked(const PrefillItem& item, int tile) const {
    return (tile + 1) * S::kKeys - 1 > item.first_position ||
           (p.window > 0 && tile * S::kKeys <= item.last_position() - p.window);
  }

  __device__ __forceinline__ void consume(const PrefillItem& item) {
    const int t = lane % 4;
    const int first = item.template first_tile<S::kKeys>(p.window);
    int tile = item.template last_tile<S::kKeys>();
    const int row = 64 * group + 16 * (thread / 32) + lane / 4;
    RowPair rows;
    rows.begin(p, item, row);
    float out[head_dim / 2];
    float scores[S::kKeys / 2];
    uint32_t weights[S::kKeys / 16][4];

    if constexpr (S::kIsFp8) convert_queries(rows);
    barrier_wait(memory.keys_full(key_place.at), key_place.parity);
    wgmma_fence();
    multiply_keys(scores);
    wgmma_wait<0>();
    wgmma_hold(scores);
    release(memory.keys_empty(key_place.at));
    key_place.advance();
    fold_scores<S::kKeys, S::kWeightShift>(p, rows, scores, tile * S::kKeys, is_masked(item, tile),
                                           t);
    pack_weights<S::kIsFp8, S::kKeys>(scores, weights);
    bool is_first = true;
    for (; tile > first; --tile) {
      barrier_wait(memory.keys_full(key_place.at), key_place.parity);
      named_sync(1 + group, S::kConsumers);  // this group's turn
      wgmma_fence();
      multiply_keys(scores);
      barrier_wait(memory.values_full(value_place.at), value_place.parity);
      if (is_first) clear_values(item, tile);
      wgmma_fence();  // else the compiler puts one where it holds up both products
      multiply_values(out, weights, !is_first);
      is_first = false;
      named_arrive(2 - group, S::kConsumers);
      wgmma_wait<1>();
      wgmma_hold(scores);
      release(memory.keys_empty(key_place.at));
      key_place.advance();
      fold_scores<S::kKeys, S::kWeightShift>(p, rows, scores, (tile - 1) * S::kKeys,
                                             is_masked(item, tile - 1), t);
      wgmma_wait<0>();
      wgmma_hold(out);
      release(memory.values_empty(value_place.at));
      value_place.advance();
#pragma unroll
      for (int i = 0; i < head_dim / 2; ++i) out[i] *= rows.rescale[i / 2 % 2];
      pack_weights<S::kIsFp8, S::kKeys>(scores, weights);
    }
    barrier_wait(memory.values_full(value_place.at), value_place.parity);
    if (is_first) clear_values(item, tile);
    wgmma_fence();
    multiply_values(out, weights, !is_first);
    wgmma_wait<0>();
    wgmma_hold(out);
    release(memory.values_empty(value_place.at));
    value_place.advance();
    store(item, rows, out, row);
  }

  __device__ __forceinline__ void store(const PrefillItem& item, RowPair& rows,
                                        const float (&out)[head_dim / 2], int row) {
    const int t = lane % 4;
    const int tile_rows = item.tokens * p.group;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = rows.sum[h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      factor[h] = p.value_scale;
      if (p.sinks != nullptr) {
        const float sink = p.sinks[item.kv_head * p.group + (row + 8 * h) % p.group] * kLog2E;
        const float base = fmaxf(rows.highest[h], sink);
        const float scale = power_of_two(rows.highest[h] - base);
        sum = sum * scale + power_of_two(sink - base + static_cast<float>(S::kWeightShift));
        factor[h] *= scale;
      }
      factor[h] = sum > 0.0f ? factor[h] / sum : 0.0f;
    }
    // Through this group's own rows of the query tile, which it has read for the last time.
    const uint32_t q = memory.q(slot.at);
#pragma unroll
    for (int i = 0; i < head_dim / 8; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t at = q + i / 8 * S::kQBoxBytes + swizzled(row + 8 * h, i % 8) + 4 * t;
        const uint32_t word =
            pack_bf16x2(out[4 * i + 2 * h] * factor[h], out[4 * i + 2 * h + 1] * factor[h]);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
      }
    }
    named_sync(3 + group, 128);
    constexpr int kChunks = head_dim / 8;  // of a row
    for (int i = thread; i < 64 * kChunks; i += 128) {
      const int r = 64 * group + i / kChunks;
      const int chunk = i % kChunks;
      if (r >= tile_rows) break;
      const uint4 v = load_shared_16(q + chunk / 8 * S::kQBoxBytes + swizzled(r, chunk % 8));
      const int token = r / p.group;
      const int head = item.kv_head * p.group + r - token * p.group;
      *reinterpret_cast<uint4*>(p.out + (item.first_row + token) * p.out_stride + head * head_dim +
                                8 * chunk) = v;
    }
    fence_async_proxy();
    __syncwarp();
    release(memory.q_empty(slot.at));
  }

  __device__ __forceinline__ void run() {
    if (group == 1) named_arrive(1, S::kConsumers);  // the first group begins
    while (true) {
      barrier_wait(memory.q_full(slot.at), slot.parity);
      const PrefillItem item = memory.items()[slot.at];
      if (item.sequence < 0) return;
      consume(item);
      slot.advance();
    }
  }
};

template <PageType type, int head_dim>
__global__ void __launch_bounds__(384, 1)
    paged_prefill_kernel(const __grid_constant__ PagedPrefillParams p) {
  using S = PrefillShape<type, head_dim>;
  extern __shared__ std::byte shared[];
  const PrefillMemory<S> memory(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(memory.keys_full(i), S::kIsFp8 ? 4 : 1);
      barrier_init(memory.values_full(i), S::kIsFp8 ? 4 : 1);
      barrier_init(memory.keys_empty(i), S::kConsumers / 32);
      barrier_init(memory.values_empty(i), S::kConsumers / 32);
    }
    for (int i = 0; i < 4 * S::kPieces; ++i) barrier_init(memory.piece_full(0, i), 1);
    for (int i = 0; i < S::kQSlots; ++i) {
      barrier_init(memory.q_full(i), 1);
      barrier_init(memory.q_empty(i), S::kConsumers / 32);
    }
    barrier_init_fence();
  }
  wait_prerequisites();
  launch_dependents();
  if (threadIdx.x < 32) count_row_tiles(p, memory.table(), lane);
  __syncthreads();
  if (warpgroup == 0) {
    give_registers<S::kProducerRegisters>();
    produce_items<type, head_dim>(p, memory);
  } else {
    take_registers<S::kConsumerRegisters>();
    RowConsumer<type, head_dim> consumer = {
        p, memory, warpgroup - 1, static_cast<int>(threadIdx.x) % 128, lane, {}, {}, {}};
    consumer.run();
  }
}

}  // namespace pelton::kernels::cuda
