#include "kernels/cuda/common/tile_launch.h"

namespace pelton::kernels::cuda {

namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's encoder, asked for through the runtime so that nothing links the driver library.
EncodeTiled find_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                         cudaEnableDefault, &found);
  if (e != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(entry);
}

EncodeTiled encoder() {
  static const EncodeTiled encode = find_encoder();
  return encode;
}

}  // namespace

cudaError_t encode_tile_map(const TileMap& tile, CUtensorMap* map) {
  const EncodeTiled encode = encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[3] = {tile.size[0], tile.size[1], tile.size[2]};
  const cuuint64_t strides[2] = {tile.stride_bytes[1], tile.stride_bytes[2]};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(128 / tile.element_bytes), tile.box_rows,
                             tile.box_depth};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType type =
      tile.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const CUresult result =
      encode(map, type, static_cast<cuuint32_t>(tile.dimensions), const_cast<void*>(tile.base),
             sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t encode_block_map(const BlockMap& blocks, CUtensorMap* map) {
  const EncodeTiled encode = encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint32_t words = blocks.block_bytes / 8;
  const cuuint64_t sizes[2] = {blocks.columns * words, blocks.rows};
  const cuuint64_t strides[1] = {blocks.columns * blocks.block_bytes};
  const cuuint32_t box[2] = {words, blocks.box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 2, const_cast<void*>(blocks.base), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t encode_page_map(const PageMap& page, CUtensorMap* map) {
  const EncodeTiled encode = encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto row = static_cast<cuuint64_t>(page.row_bytes);
  const cuuint64_t sizes[5] = {64, 8, row / 128, page.rows / 8, page.blocks};
  const cuuint64_t strides[4] = {row, 128, 8 * row, page.block_stride};
  const cuuint32_t box[5] = {64, 8, static_cast<cuuint32_t>(row / 128), page.box_rows / 8, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void*>(page.base), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace pelton::kernels::cuda
