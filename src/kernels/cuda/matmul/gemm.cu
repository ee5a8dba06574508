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

template <GemmType type, int columns, GemmPromotion promotion = GemmPromotion::kNone,
          bool cut = false>
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
  p.cluster = a.m > S::kRows ? 2 : 1;
  p.row_tiles = ceil_divide(a.m, S::kRows * p.cluster);
  p.block_rows = 8 * ceil_divide(a.m, 8 * p.row_tiles * p.cluster);
  tile.box_rows = static_cast<uint32_t>(p.block_rows);
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
  p.scale_boxes = ceil_divide(a.k, S::kBoxElements);
  p.k_boxes = p.scale_boxes;
  if constexpr (promotion != GemmPromotion::kNone) p.k_boxes += p.k_boxes % 2;
  p.splits = cut ? a.splits : 1;
  p.silu = a.epilogue == GemmEpilogue::kSiluMul;
  p.column_tiles = ceil_divide(p.silu ? a.n / 2 : a.n, p.silu ? columns / 2 : columns);
  p.out_f32 = a.out_f32;
  p.finish = finish_of(a);
  const int tiles = p.row_tiles * p.column_tiles;
  const int clusters = std::min(tiles * p.splits, kMultiprocessors / p.cluster);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(clusters * p.cluster);
  shape.block = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.cluster = static_cast<unsigned>(p.cluster);
  shape.programmatic = a.programmatic;
  return launch_programmatic(gemm_kernel<type, columns, promotion, cut>, p, shape, stream);
}

struct AddSharesParams {
  const float* sums;  // [splits][m][n]
  const float* x_scale;
  const float* w_scale;
  void* out;
  int64_t out_stride;
  int32_t m;
  int32_t n;
  int32_t splits;
  GemmFinish finish;  // kBF16, kF32 or kAdd
};

// Four outputs a thread.
__global__ void __launch_bounds__(256) add_shares_kernel(const AddSharesParams p) {
  const int64_t index = 4 * (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x);
  const int64_t size = static_cast<int64_t>(p.m) * p.n;
  wait_prerequisites();
  launch_dependents();
  if (index >= size) return;
  const int row = static_cast<int>(index / p.n);
  const int column = static_cast<int>(index % p.n);
  float4 sum = __ldcg(reinterpret_cast<const float4*>(p.sums + index));
#pragma unroll 4
  for (int i = 1; i < p.splits; ++i) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(p.sums + i * size + index));
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  const float by = p.x_scale != nullptr ? p.x_scale[row] : 1.0f;
  float4 w = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  if (p.w_scale != nullptr) {
    const auto* pairs = reinterpret_cast<const float2*>(p.w_scale + column);
    w = make_float4(pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y);
  }
  sum = make_float4(sum.x * (by * w.x), sum.y * (by * w.y), sum.z * (by * w.z), sum.w * (by * w.w));
  const int64_t at = row * p.out_stride + column;
  if (p.finish == GemmFinish::kBF16) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.out) + at) =
        make_uint2(pack_bf16x2(sum.x, sum.y), pack_bf16x2(sum.z, sum.w));
    return;
  }
  auto* out = reinterpret_cast<float4*>(static_cast<float*>(p.out) + at);
  if (p.finish == GemmFinish::kAdd) {
    const float4 v = *out;
    sum = make_float4(v.x + sum.x, v.y + sum.y, v.z + sum.z, v.w + sum.w);
  }
  *out = sum;
}

cudaError_t launch_add_shares(const GemmArgs& a, cudaStream_t stream) {
  const bool scaled = a.scales == GemmScales::kRows;
  const AddSharesParams p = {.sums = a.split_sums,
                             .x_scale = scaled ? a.x_scale : nullptr,
                             .w_scale = scaled ? a.w_scale : nullptr,
                             .out = a.out,
                             .out_stride = a.out_stride,
                             .m = a.m,
                             .n = a.n,
                             .splits = a.splits,
                             .finish = finish_of(a)};
  LaunchShape shape;
  shape.grid = static_cast<unsigned>((static_cast<int64_t>(a.m) * a.n / 4 + 255) / 256);
  shape.block = 256;
  shape.programmatic = a.programmatic;
  return launch_programmatic(add_shares_kernel, p, shape, stream);
}

bool allows_splits(const GemmArgs& a) {
  const GemmFinish finish = finish_of(a);
  return a.type == GemmType::kFp8 && !a.promote && a.scales != GemmScales::kBlocks &&
         finish != GemmFinish::kAny && finish != GemmFinish::kSiluMul && a.splits > 1 &&
         a.splits <= ceil_divide(a.k, 128) && a.split_sums != nullptr && aligned(a.split_sums);
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
  if (a.splits != 1 && !allows_splits(a)) return false;
  if (a.residual != nullptr && a.residual_stride % 2 != 0) return false;
  return a.x_stride >= a.k && a.x_stride % inputs == 0 && a.out_stride % 8 == 0 &&
         aligned(a.x, 16) && aligned(a.weight, 16) && aligned(a.out, 16) &&
         aligned(a.residual, 8) && aligned(a.w_scale, 8);
}

cudaError_t launch_gemm(const GemmArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.m == 0) return cudaSuccess;
  if (a.scales == GemmScales::kBlocks) {
    return launch_shape<GemmType::kFp8, 128, GemmPromotion::kScaled>(a, stream);
  }
  if (a.promote) return launch_shape<GemmType::kFp8, 128, GemmPromotion::kSums>(a, stream);
  if (a.splits != 1) {
    GemmArgs shares = a;
    shares.scales = GemmScales::kNone;
    shares.residual = nullptr;
    shares.out = a.split_sums;
    shares.out_stride = a.n;
    shares.out_f32 = true;
    const cudaError_t e =
        launch_shape<GemmType::kFp8, 128, GemmPromotion::kNone, true>(shares, stream);
    return e != cudaSuccess ? e : launch_add_shares(a, stream);
  }
  // Wide tiles read their operands less often; narrow ones fill the chip more evenly.
  const bool wide = rounds_cost(a, 256) * 10 <= rounds_cost(a, 128) * 11;
  if (a.type == GemmType::kInt8) {
    return wide ? launch_shape<GemmType::kInt8, 256>(a, stream)
                : launch_shape<GemmType::kInt8, 128>(a, stream);
  }
  if (a.type == GemmType::kFp8) {
    return wide ? launch_shape<GemmType::kFp8, 256>(a, stream)
                : launch_shape<GemmType::kFp8, 128>(a, stream);
  }
  return wide ? launch_shape<GemmType::kBF16, 256>(a, stream)
              : launch_shape<GemmType::kBF16, 128>(a, stream);
}

}  // namespace pelton::kernels::cuda
