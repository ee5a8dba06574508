#include <algorithm>

#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/gemm.h"
#include "kernels/cuda/matmul/gemm_kernel.cuh"

namespace pelton::kernels::cuda {

namespace {

constexpr int kMultiprocessors = 132;  // of an H200; sizes the grid only

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

GemmFinish finish_of(const GemmArgs& a) {
  if (a.bias != nullptr) return GemmFinish::kAny;
  const bool silu = a.epilogue == GemmEpilogue::kSiluMul;
  if (a.residual == nullptr) {
    if (a.out_f32) return silu ? GemmFinish::kAny : GemmFinish::kF32;
    return silu ? GemmFinish::kSiluMul : GemmFinish::kBF16;
  }
  const bool in_place = a.residual == a.out && a.residual_stride == a.out_stride;
  return in_place && a.out_f32 && !silu ? GemmFinish::kAdd : GemmFinish::kAny;
}

// Time of the tiles in units of one 128 x 128 tile: rounds of the busiest block.
int rounds_cost(const GemmArgs& a, int columns) {
  const int tiles = ceil_divide(a.m, 128) * ceil_divide(a.n, columns);
  return ceil_divide(tiles, kMultiprocessors) * columns / 128;
}

template <GemmType type, int columns, bool promote>
cudaError_t launch_shape(const GemmArgs& a, cudaStream_t stream) {
  using S = GemmShape<type, columns>;
  constexpr int kElementBytes = type == GemmType::kBF16 ? 2 : 1;
  GemmParams p = {};
  TileMap tile;
  tile.element_bytes = kElementBytes;
  tile.size[0] = static_cast<uint64_t>(a.k);
  tile.base = a.x;
  tile.size[1] = static_cast<uint64_t>(a.m);
  tile.stride_bytes[1] = static_cast<uint64_t>(a.x_stride) * kElementBytes;
  tile.box_rows = S::kRows;
  if (cudaError_t e = encode_tile_map(tile, &p.x_map); e != cudaSuccess) return e;
  tile.base = a.weight;
  tile.size[1] = static_cast<uint64_t>(a.n);
  tile.stride_bytes[1] = static_cast<uint64_t>(a.k) * kElementBytes;
  tile.box_rows = S::kHalf;
  if (cudaError_t e = encode_tile_map(tile, &p.weight_map); e != cudaSuccess) return e;
  const bool scaled = a.scales == GemmScales::kRows;
  p.block_scales = a.scales == GemmScales::kBlocks;
  p.x_scale = scaled || p.block_scales ? a.x_scale : nullptr;
  p.w_scale = scaled || p.block_scales ? a.w_scale : nullptr;
  p.bias = a.bias;
  p.residual = a.residual;
  p.residual_stride = a.residual_stride;
  p.out = a.out;
  p.out_stride = a.out_stride;
  p.m = a.m;
  p.n = a.n;
  p.k_boxes = ceil_divide(a.k, S::kBoxElements);
  p.cluster = a.m > S::kRows ? 2 : 1;
  p.row_tiles = ceil_divide(a.m, S::kRows * p.cluster);
  p.silu = a.epilogue == GemmEpilogue::kSiluMul;
  p.column_tiles = ceil_divide(p.silu ? a.n / 2 : a.n, p.silu ? columns / 2 : columns);
  p.out_f32 = a.out_f32;
  p.finish = finish_of(a);
  const int clusters = std::min(p.row_tiles * p.column_tiles, kMultiprocessors / p.cluster);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(clusters * p.cluster);
  shape.block = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.cluster = static_cast<unsigned>(p.cluster);
  shape.programmatic = a.programmatic;
  return launch_programmatic(gemm_kernel<type, columns, promote>, p, shape, stream);
}

}  // namespace

bool supports(const GemmArgs& a) {
  const bool is_bf16 = a.type == GemmType::kBF16;
  const bool silu = a.epilogue == GemmEpilogue::kSiluMul;
  const int inputs = is_bf16 ? 8 : 16;  // of 16 bytes
  if (a.m < 0 || a.n < 8 || a.k < 1 || a.n % (silu ? 16 : 8) != 0 || a.k % inputs != 0) {
    return false;
  }
  if (is_bf16 && (a.promote || a.scales != GemmScales::kNone)) return false;
  if (a.type == GemmType::kInt8 &&
      (a.promote || a.scales == GemmScales::kBlocks || a.k > kGemmInt8MostInputs)) {
    return false;
  }
  if (a.scales == GemmScales::kBlocks && (a.k % 128 != 0 || a.x_scale == nullptr ||
                                          a.w_scale == nullptr || (silu && a.n % 256 != 0))) {
    return false;
  }
  if (a.residual != nullptr && a.residual_stride % 2 != 0) return false;
  return a.x_stride >= a.k && a.x_stride % inputs == 0 && a.out_stride % 8 == 0 &&
         aligned(a.x, 16) && aligned(a.weight, 16) && aligned(a.out, 16) &&
         aligned(a.residual, 8) && aligned(a.w_scale, 8);
}

cudaError_t launch_gemm(const GemmArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.m == 0) return cudaSuccess;
  if (a.type == GemmType::kFp8 && (a.promote || a.scales == GemmScales::kBlocks)) {
    return launch_shape<GemmType::kFp8, 128, true>(a, stream);
  }
  // Wide tiles read their operands less often; narrow ones fill the chip more evenly.
  const bool wide = rounds_cost(a, 256) * 10 <= rounds_cost(a, 128) * 11;
  if (a.type == GemmType::kInt8) {
    return wide ? launch_shape<GemmType::kInt8, 256, false>(a, stream)
                : launch_shape<GemmType::kInt8, 128, false>(a, stream);
  }
  if (a.type == GemmType::kFp8) {
    return wide ? launch_shape<GemmType::kFp8, 256, false>(a, stream)
                : launch_shape<GemmType::kFp8, 128, false>(a, stream);
  }
  return wide ? launch_shape<GemmType::kBF16, 256, false>(a, stream)
              : launch_shape<GemmType::kBF16, 128, false>(a, stream);
}

}  // namespace pelton::kernels::cuda
