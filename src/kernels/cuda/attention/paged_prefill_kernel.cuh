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

namespace pelton::kernels::cuda {

// What a tile of a page holds.
inline constexpr int kOfKeys = 0;
inline constexpr int kOfValues = 1;

template <PageType type, int head_dim>
struct PrefillShape {
  static constexpr bool kIsFp8 = type == PageType::kFp8;
  static constexpr WgmmaType kOperands = kIsFp8 ? WgmmaType::kF16 : WgmmaType::kBF16;
  // Warps that write FP8 codes as FP16: as many for keys as for values. After them come those that
  // drive the copy engine. They have two warpgroups where the consumers' registers allow.
  static constexpr int kConverters = !kIsFp8 ? 0 : head_dim == 256 ? 1 : 2;
  // Short rings of pieces would let one warp's wait for keys hold up values. Whole tiles are
  // brought by one: 4 % faster than by two.
  static constexpr int kLoaders = kIsFp8 ? 2 : 1;
  static constexpr int kProducers = kConverters == 2 ? 256 : 128;
  static constexpr int kConsumers = 256;  // two warpgroups
  static constexpr int kThreads = kProducers + kConsumers;
  static constexpr int kKeys = head_dim == 256 ? 64 : 128;  // of a tile
  static constexpr int kBoxes = head_dim / 64;              // 128-byte boxes along the head
  // Tiles of keys and values: eight rows of one box after another, then the next eight rows.
  static constexpr int kGroupBytes = kBoxes * 1024;
  static constexpr int kTileBytes = kKeys / 8 * kGroupBytes;
  static constexpr int kStages = head_dim == 64 ? 3 : 2;  // of keys, and as many of values
  static constexpr int kQBoxBytes = kPrefillRows * 128;
  static constexpr int kQBytes = kBoxes * kQBoxBytes;
  static constexpr int kQSlots = head_dim == 256 ? 1 : 2;
  // What the copy engine brings at once: BF16 tiles, of FP8 codes a piece of a tile.
  static constexpr int kPieceKeys = kIsFp8 ? 4096 / head_dim : kKeys;
  static constexpr int kPieceBytes = kPieceKeys * head_dim * (kIsFp8 ? 1 : 2);
  static constexpr int kPieces = !kIsFp8 ? kStages : head_dim == 64 ? 6 : 3;  // of either kind
  static constexpr int kPiecesAt = kQSlots * kQBytes + 2 * kStages * kTileBytes;
  static constexpr int kTableAt = kPiecesAt + (kIsFp8 ? 2 * kPieces * kPieceBytes : 0);
  static constexpr int kBarriersAt = kTableAt + (kPrefillMaxSequences + 2) * 4;
  static constexpr int kBarriers = 4 * kStages + 2 * kQSlots + (kIsFp8 ? 4 * kPieces : 0);
  static constexpr int kItemsAt = kBarriersAt + kBarriers * 8;
  static constexpr int kSharedBytes =
      1024 + kItemsAt + kQSlots * static_cast<int>(sizeof(PrefillItem));
  // Together no more than the block began with: 3 * 168 or 4 * 128.
  static constexpr int kProducerRegisters = !kIsFp8 ? 40 : kProducers == 256 ? 48 : 72;
  static constexpr int kConsumerRegisters = !kIsFp8 ? 232 : kProducers == 256 ? 208 : 216;
  // Weights in fp16 count from 2^14 at the row's maximum: smaller ones keep their bits for longer.
  static constexpr int kWeightShift = kIsFp8 ? 14 : 0;
};

// Addresses in shared memory; `kind` is of keys or of values.
template <typename S>
struct PrefillMemory {
  uint32_t base;
  std::byte* pointer;  // the same

  __device__ explicit PrefillMemory(std::byte* shared)
      : base((shared_address(shared) + 1023) & ~1023u),
        pointer(shared + (base - shared_address(shared))) {}
  __device__ uint32_t barrier(int i) const { return base + S::kBarriersAt + 8 * i; }
  __device__ uint32_t q(int slot) const { return base + slot * S::kQBytes; }
  __device__ uint32_t q_full(int i) const { return barrier(4 * S::kStages + i); }
  __device__ uint32_t q_empty(int i) const { return barrier(4 * S::kStages + S::kQSlots + i); }
  __device__ uint32_t tile(int kind, int i) const {
    return base + S::kQSlots * S::kQBytes + (kind * S::kStages + i) * S::kTileBytes;
  }
  __device__ uint32_t full(int kind, int i) const { return barrier(kind * S::kStages + i); }
  __device__ uint32_t empty(int kind, int i) const { return barrier((2 + kind) * S::kStages + i); }
  // Pieces of BF16 pages are the tiles.
  __device__ uint32_t piece(int kind, int i) const {
    if (!S::kIsFp8) return tile(kind, i);
    return base + S::kPiecesAt + (kind * S::kPieces + i) * S::kPieceBytes;
  }
  __device__ uint32_t piece_full(int kind, int i) const {
    if (!S::kIsFp8) return full(kind, i);
    return barrier(4 * S::kStages + 2 * S::kQSlots + kind * S::kPieces + i);
  }
  __device__ uint32_t piece_empty(int kind, int i) const {
    return S::kIsFp8 ? piece_full(2 + kind, i) : empty(kind, i);
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

// The copy engine's side: a warp for keys and one for values, or one for both; a lane a box.
template <PageType type, int head_dim>
struct PageLoader {
  using S = PrefillShape<type, head_dim>;
  const PagedPrefillParams& p;
  const PrefillMemory<S>& memory;
  int kind;  // unless one warp loads both
  int lane;
  int piece_boxes;  // of a piece
  uint64_t policy;
  RingPlace<S::kPieces> place;
  RingPlace<S::kPieces> value_place;  // where one warp loads both

  __device__ PageLoader(const PagedPrefillParams& params, const PrefillMemory<S>& m, int k, int l)
      : p(params),
        memory(m),
        kind(k),
        lane(l),
        piece_boxes(S::kPieceKeys / params.box_keys),
        policy(policy_evict_normal()) {}

  __device__ __forceinline__ int block_of(const PrefillItem& item, const int32_t* blocks,
                                          int tile) const {
    const int key = tile * S::kKeys + lane * p.box_keys;
    return tile >= 0 && lane * p.box_keys < S::kKeys && key < item.context
               ? blocks[key / p.block_tokens]
               : 0;
  }

  __device__ __forceinline__ void load(int of, RingPlace<S::kPieces>& place,
                                       const PrefillItem& item, int tile, int block) const {
    const int first_key = tile * S::kKeys;
    const int boxes = (item.context - first_key + p.box_keys - 1) / p.box_keys;
    const int row =
        item.kv_head * p.block_tokens + (first_key + lane * p.box_keys) % p.block_tokens;
    const int box_bytes = p.box_keys * (S::kPieceBytes / S::kPieceKeys);
#pragma unroll
    for (int first = 0; first < S::kKeys / S::kPieceKeys; ++first) {
      const int box = lane - first * piece_boxes;  // of this piece
      const int piece = min(piece_boxes, max(boxes - first * piece_boxes, 0));
      const uint32_t full = memory.piece_full(of, place.at);
      const uint32_t to = memory.piece(of, place.at) + box * box_bytes;
      barrier_wait(memory.piece_empty(of, place.at), place.parity ^ 1);
      if (lane == 0) barrier_arrive_expect(full, piece * box_bytes);
      __syncwarp();
      if (box >= 0 && box < piece) {
        if constexpr (S::kIsFp8) {
          bulk_copy(to,
                    (of == kOfKeys ? p.keys : p.values) + block * p.block_stride +
                        static_cast<int64_t>(row) * head_dim,
                    box_bytes, full, policy);
        } else {
          tile_copy_5d(to, of == kOfKeys ? &p.key_map : &p.value_map, 0, 0, 0, row / 8, block, full,
                       policy);
        }
      }
      place.advance();
    }
  }

  __device__ __forceinline__ void load_item(const PrefillItem& item) {
    const int32_t* blocks = block_table(p, item.sequence);
    const int first = item.template first_tile<S::kKeys>(p.window);
    int tile = item.template last_tile<S::kKeys>();
    int block = block_of(item, blocks, tile);
    int next_block = block_of(item, blocks, tile - 1);
    if constexpr (S::kLoaders == 2) {
      for (; tile >= first; --tile) {
        const int after = block_of(item, blocks, tile - 2);
        load(kind, place, item, tile, block);
        block = next_block;
        next_block = after;
      }
    } else {  // keys run one tile ahead of values, as the consumers take them
      load(kOfKeys, place, item, tile, block);
      for (; tile > first; --tile) {
        const int after = block_of(item, blocks, tile - 2);
        load(kOfKeys, place, item, tile - 1, next_block);
        load(kOfValues, value_place, item, tile, block);
        block = next_block;
        next_block = after;
      }
      load(kOfValues, value_place, item, tile, block);
    }
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

// FP8 pages: one of the warps that write keys, or values, as the fp16 that their codes stand for,
// scales apart. The fence that shows a tile to the matrix unit takes long: keys and values wait for
// it beside each other. A lane takes the same 16 codes of every kStepKeys-th key of its warp's
// share of a piece.
template <PageType type, int head_dim>
struct PageConverter {
  using S = PrefillShape<type, head_dim>;
  static constexpr int kShareKeys = S::kPieceKeys / S::kConverters;
  static constexpr int kRowChunks = head_dim / 16;  // of 16 codes
  static constexpr int kStepKeys = 32 / kRowChunks;
  static constexpr int kChunks = kShareKeys / kStepKeys;
  const PagedPrefillParams& p;
  const PrefillMemory<S>& memory;
  int kind;
  int first_key;  // of this warp's share of a piece
  int lane;
  uint32_t offsets[2];  // where a lane's two runs of eight lie, in the order of writing
  bool swaps;           // writes the second run first: neighbouring boxes keep banks apart
  RingPlace<S::kPieces> piece;
  RingPlace<S::kStages> tile;

  __device__ PageConverter(const PagedPrefillParams& params, const PrefillMemory<S>& m, int warp,
                           int l)
      : p(params),
        memory(m),
        kind(warp / S::kConverters),
        first_key(warp % S::kConverters * kShareKeys),
        lane(l) {
    const int key = lane / kRowChunks;
    const int chunk = lane % kRowChunks;
    swaps = (chunk / 4 & 1) != 0;
    const uint32_t at = first_key / 8 * S::kGroupBytes + chunk / 4 * 1024;
    offsets[0] = at + swizzled(key, 2 * (chunk % 4) + (swaps ? 1 : 0));
    offsets[1] = at + swizzled(key, 2 * (chunk % 4) + (swaps ? 0 : 1));
  }

  // This warp's share of the piece at the ring's place, to that piece of a tile; keys at and past
  // `valid` of it are 0.
  __device__ __forceinline__ void convert(uint32_t to, int valid) const {
    const uint32_t from = memory.piece(kind, piece.at) + first_key * head_dim + 16 * lane;
    uint4 codes[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) codes[i] = load_shared_16(from + 512 * i);
    if (valid < kShareKeys) {
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

  __device__ __forceinline__ void convert_item(const PrefillItem& item) {
    const int first = item.template first_tile<S::kKeys>(p.window);
    for (int t = item.template last_tile<S::kKeys>(); t >= first; --t) {
      const int valid = item.context - t * S::kKeys - first_key;
      const uint32_t to = memory.tile(kind, tile.at);
      barrier_wait(memory.empty(kind, tile.at), tile.parity ^ 1);
#pragma unroll
      for (int key = 0; key < S::kKeys; key += S::kPieceKeys) {
        barrier_wait(memory.piece_full(kind, piece.at), piece.parity);
        convert(to + key / 8 * S::kGroupBytes, valid - key);
        __syncwarp();
        if (lane == 0) barrier_arrive(memory.piece_empty(kind, piece.at));
        piece.advance();
      }
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) barrier_arrive(memory.full(kind, tile.at));
      tile.advance();
    }
  }
};

// The producers: the converting warps, if any, then the copying ones, of which the first draws the
// items for all.
template <PageType type, int head_dim>
__device__ __forceinline__ void produce_items(
    const PagedPrefillParams& p, const PrefillMemory<PrefillShape<type, head_dim>>& memory) {
  using S = PrefillShape<type, head_dim>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<S::kQSlots> slot;
  if constexpr (S::kIsFp8) {
    const int kind = warp - 2 * S::kConverters;  // that this warp copies; < 0: it converts
    if (kind >= S::kLoaders) return;
    const auto next_item = [&] {
      if (kind == kOfKeys) return draw_item<type, head_dim>(p, memory, slot, lane);
      barrier_wait(memory.q_full(slot.at), slot.parity);
      return memory.items()[slot.at];
    };
    if (kind >= 0) {
      PageLoader<type, head_dim> loader(p, memory, kind, lane);
      for (PrefillItem item = next_item(); item.sequence >= 0; item = next_item()) {
        loader.load_item(item);
        slot.advance();
      }
    } else {
      PageConverter<type, head_dim> converter(p, memory, warp, lane);
      for (PrefillItem item = next_item(); item.sequence >= 0; item = next_item()) {
        converter.convert_item(item);
        slot.advance();
      }
    }
  } else if (warp == 0) {
    PageLoader<type, head_dim> loader(p, memory, kOfKeys, lane);
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
    const uint32_t keys = memory.tile(kOfKeys, key_place.at);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      const uint64_t a = operand_along_k(q + box * S::kQBoxBytes);
      const uint64_t b = operand_along_k(keys + box * 1024, S::kGroupBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wgmma<S::kOperands>(scores, a + 2 * i, b + 2 * i, box + i > 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_values(float (&out)[head_dim / 2],
                                                  const uint32_t (&weights)[S::kKeys / 16][4],
                                                  bool accumulate) const {
    const uint64_t b =
        operand_along_n(memory.tile(kOfValues, value_place.at), 1024, S::kGroupBytes);
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; ++i) {
      const uint64_t rows = b + (2 * S::kGroupBytes >> 4) * i;
      wgmma<S::kOperands, true>(out, weights[i], rows, accumulate || i > 0);
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
      const uint32_t at = memory.tile(kOfValues, value_place.at) + key / 8 * S::kGroupBytes +
                          key % 8 * 128 + i % kChunks / 8 * 1024 + i % 8 * 16;
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
    barrier_wait(memory.full(kOfKeys, key_place.at), key_place.parity);
    wgmma_fence();
    multiply_keys(scores);
    wgmma_wait<0>();
    wgmma_hold(scores);
    release(memory.empty(kOfKeys, key_place.at));
    key_place.advance();
    fold_scores<S::kKeys, S::kWeightShift>(p, rows, scores, tile * S::kKeys, is_masked(item, tile),
                                           t);
    pack_weights<S::kIsFp8, S::kKeys>(scores, weights);
    bool is_first = true;
    for (; tile > first; --tile) {
      barrier_wait(memory.full(kOfKeys, key_place.at), key_place.parity);
      named_sync(1 + group, S::kConsumers);  // this group's turn
      wgmma_fence();
      multiply_keys(scores);
      barrier_wait(memory.full(kOfValues, value_place.at), value_place.parity);
      if (is_first) clear_values(item, tile);
      wgmma_fence();  // else the compiler puts one where it holds up both products
      multiply_values(out, weights, !is_first);
      is_first = false;
      named_arrive(2 - group, S::kConsumers);
      wgmma_wait<1>();
      wgmma_hold(scores);
      release(memory.empty(kOfKeys, key_place.at));
      key_place.advance();
      fold_scores<S::kKeys, S::kWeightShift>(p, rows, scores, (tile - 1) * S::kKeys,
                                             is_masked(item, tile - 1), t);
      wgmma_wait<0>();
      wgmma_hold(out);
      release(memory.empty(kOfValues, value_place.at));
      value_place.advance();
#pragma unroll
      for (int i = 0; i < head_dim / 2; ++i) out[i] *= rows.rescale[i / 2 % 2];
      pack_weights<S::kIsFp8, S::kKeys>(scores, weights);
    }
    barrier_wait(memory.full(kOfValues, value_place.at), value_place.parity);
    if (is_first) clear_values(item, tile);
    wgmma_fence();
    multiply_values(out, weights, !is_first);
    wgmma_wait<0>();
    wgmma_hold(out);
    release(memory.empty(kOfValues, value_place.at));
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
__global__ void __launch_bounds__(PrefillShape<type, head_dim>::kThreads, 1)
    paged_prefill_kernel(const __grid_constant__ PagedPrefillParams p) {
  using S = PrefillShape<type, head_dim>;
  extern __shared__ std::byte shared[];
  const PrefillMemory<S> memory(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (const int kind : {kOfKeys, kOfValues}) {
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(memory.full(kind, i), S::kIsFp8 ? S::kConverters : 1);
        barrier_init(memory.empty(kind, i), S::kConsumers / 32);
      }
      for (int i = 0; S::kIsFp8 && i < S::kPieces; ++i) {
        barrier_init(memory.piece_full(kind, i), 1);
        barrier_init(memory.piece_empty(kind, i), S::kConverters);
      }
    }
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
  if (threadIdx.x < S::kProducers) {
    give_registers<S::kProducerRegisters>();
    produce_items<type, head_dim>(p, memory);
  } else {
    take_registers<S::kConsumerRegisters>();
    const int thread = static_cast<int>(threadIdx.x) - S::kProducers;
    RowConsumer<type, head_dim> consumer = {p,    memory, thread / 128, thread % 128,
                                            lane, {},     {},           {}};
    consumer.run();
  }
}

}  // namespace pelton::kernels::cuda
