// Host side of every launch: attributes, shared memory limit, tensor maps. Nothing here allocates
// or synchronises.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::kernels::cuda {

inline bool aligned(const void* pointer, uintptr_t to = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % to == 0;
}

struct LaunchShape {
  unsigned grid = 1;
  unsigned block = 1;
  unsigned shared_bytes = 0;
  unsigned cluster = 1;
  bool programmatic = true;  // may begin before the kernel ahead of it in the stream has ended
};

// Launches `kernel(params)`, raising its shared memory limit where needed. cudaGetLastError is left
// clean.
template <typename Params>
cudaError_t launch_programmatic(void (*kernel)(Params), const Params& params,
                                const LaunchShape& shape, cudaStream_t stream) {
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shape.shared_bytes));
      e != cudaSuccess) {
    return e;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (shape.programmatic) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.block);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  Params copy = params;
  void* arguments[] = {&copy};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments);
}

// A tensor of up to 3 dimensions cut into boxes of 128 bytes in dimension 0 (the contiguous one),
// written to shared memory with the 128-byte swizzle. Elements outside the tensor arrive as zero.
struct TileMap {
  const void* base = nullptr;  // 16-byte aligned
  int element_bytes = 2;       // 2: bf16; 1: bytes
  int dimensions = 2;
  uint64_t size[3] = {1, 1, 1};          // elements
  uint64_t stride_bytes[3] = {0, 0, 0};  // of dimensions 1 and 2; multiples of 16
  uint32_t box_rows = 1;                 // in dimension 1, at most 256
  uint32_t box_depth = 1;                // in dimension 2, likewise
};
cudaError_t encode_tile_map(const TileMap& tile, CUtensorMap* map);

// Rows of blocks of bytes, brought as `box_rows` blocks that lie one under the other, without a
// swizzle and end to end. Blocks outside arrive as zero.
struct BlockMap {
  const void* base = nullptr;   // 16-byte aligned
  uint32_t block_bytes = 1024;  // a multiple of 16, at most 2,048
  uint64_t columns = 1;         // blocks of a row
  uint64_t rows = 1;
  uint32_t box_rows = 1;  // at most 256
};
cudaError_t encode_block_map(const BlockMap& blocks, CUtensorMap* map);

// Pages of bf16 rows (of whole 128-byte pieces), brought `box_rows` rows at a time by one request.
// In shared memory each eight rows are one piece after another, eight times 128 bytes each, with
// the 128-byte swizzle. Coordinates: 0, 0, 0, row / 8, block.
struct PageMap {
  const void* base = nullptr;  // 16-byte aligned
  int row_bytes = 256;         // a multiple of 128
  uint64_t rows = 8;           // of a block, a multiple of 8
  uint64_t blocks = 1;
  uint64_t block_stride = 0;  // bytes, a multiple of 16
  uint32_t box_rows = 8;      // a multiple of 8
};
cudaError_t encode_page_map(const PageMap& page, CUtensorMap* map);

}  // namespace pelton::kernels::cuda
