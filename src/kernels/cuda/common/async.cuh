// Barriers in shared memory, the bulk copy engine, cluster addressing and programmatic dependent
// launch (sm_90). Addresses of shared memory are 32-bit, as the instructions take them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace pelton::kernels::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- mbarrier -----------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives and announces `bytes` that the copy engine will deliver in this phase.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// The same for a barrier on which another block of the cluster arrives.
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// --- cluster ------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The address of the same shared variable in block `rank` of the cluster.
__device__ __forceinline__ uint32_t peer_address(uint32_t address, uint32_t rank) {
  uint32_t peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}

__device__ __forceinline__ void store_peer(uint32_t peer, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(peer), "f"(value) : "memory");
}

// 16 bytes of a peer's shared memory.
__device__ __forceinline__ float4 load_peer_16(uint32_t peer) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(peer)
               : "memory");
  return v;
}

// The same without ordering this thread's writes, which costs a fence of the whole device: hands
// back a buffer that was only read, and read to the end.
__device__ __forceinline__ void barrier_release_peer(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier) : "memory");
}

__device__ __forceinline__ void barrier_arrive_peer(uint32_t peer_barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier)
               : "memory");
}

// Barrier `id` (1..15) among the first `threads` threads that name it.
// The other threads of a named_sync wait for this thread's arrival, this thread for nothing.
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- copy engine --------------------------------------------------------------------------------

// Cache policies of the copies: weights and pages pass through L2 once, activations stay.
__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_evict_last() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t policy_evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `bytes` a multiple of 16, both addresses 16-byte aligned.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tile_copy_2d(uint32_t to, const CUtensorMap* map, int32_t c0,
                                             int32_t c1, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tile_copy_3d(uint32_t to, const CUtensorMap* map, int32_t c0,
                                             int32_t c1, int32_t c2, uint32_t barrier,
                                             uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tile_copy_5d(uint32_t to, const CUtensorMap* map, int32_t c0,
                                             int32_t c1, int32_t c2, int32_t c3, int32_t c4,
                                             uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "l"(policy)
      : "memory");
}

// Into the same place of every block of the cluster whose bit is set in `blocks`, completing on the
// barrier at the same place there.
__device__ __forceinline__ void tile_copy_2d_multicast(uint32_t to, const CUtensorMap* map,
                                                       int32_t c0, int32_t c1, uint32_t barrier,
                                                       uint16_t blocks, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(barrier), "h"(blocks), "l"(policy)
      : "memory");
}

// Brings a line of global memory into L2 without waiting for it.
__device__ __forceinline__ void prefetch_l2(const void* pointer) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(pointer)));
}

// --- programmatic dependent launch --------------------------------------------------------------
// Every kernel here waits first and lets the next one begin afterwards. So when a kernel begins
// early, all but the one directly ahead of it have ended: before its own wait it may read whatever
// that one does not write. (Nor would it gain to let it begin at once: blocks that come while those
// of two kernels are still there land two on one multiprocessor and none on another.)

// The next kernel of the stream may begin its prologue.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Everything earlier kernels wrote is visible after this. What the kernel ahead writes may not be
// read, and nothing at all may be written, before it.
__device__ __forceinline__ void wait_prerequisites() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace pelton::kernels::cuda
