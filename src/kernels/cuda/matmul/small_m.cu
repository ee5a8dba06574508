#include <algorithm>

#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/small_m.h"
#include "kernels/cuda/matmul/small_m_kernel.cuh"

namespace pelton::kernels::cuda {

namespace {

// Of an H200. The cut of K follows it, so it is a constant and not a property of the device.
constexpr int kMultiprocessors = 132;

int units_of(const SmallMArgs& a) {
  const int rows = a.epilogue == SmallMEpilogue::kSiluMul ? a.n / 2 : a.n;
  return (rows + 15) / 16;
}

int box_inputs(SmallMWeight format) { return format == SmallMWeight::kBF16 ? 64 : 128; }

// Share of the chip at work when `units` are spread over `workers`.
double occupancy(int units, int workers) {
  return units / (static_cast<double>((units + workers - 1) / workers) * workers);
}

// The most tiles that any block multiplies in one pass.
int most_tiles(int units, int clusters, bool silu, int tiles) {
  const int per_pass = silu ? tiles / 2 : tiles;
  int most = 1;
  for (const int count : {units / clusters, (units + clusters - 1) / clusters}) {
    const int passes = std::max(1, (count + per_pass - 1) / per_pass);
    most = std::max(most, (count + passes - 1) / passes);
  }
  return silu ? 2 * most : most;
}

// Whether two blocks share a multiprocessor: decoding weights keeps a block's warps waiting for one
// another, and a product of several passes has more to gain from twice the warps than from room for
// the next one's weights. Part of the numerics, so no property of m.
bool is_paired(const SmallMArgs& a) {
  return a.format != SmallMWeight::kBF16 && small_m_split(a) == 1 &&
         units_of(a) >= 3 * 2 * kMultiprocessors;
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

bool fits_format(const SmallMArgs& a) {
  switch (a.format) {
    case SmallMWeight::kBF16:
      return a.k % 8 == 0;
    case SmallMWeight::kFp8:
      return a.k % 16 == 0 && a.scale != nullptr;
    case SmallMWeight::kInt4G128:
      return a.k % kInt4Group == 0 && (a.epilogue == SmallMEpilogue::kNone || a.n % 32 == 0);
  }
  return false;
}

template <SmallMWeight format, int columns, int split>
cudaError_t launch_shape(const SmallMArgs& a, cudaStream_t stream) {
  using S = SmallMShape<format, columns>;
  SmallMParams p = {};
  TileMap x;
  x.base = a.x;
  x.size[0] = static_cast<uint64_t>(a.k);
  x.size[1] = static_cast<uint64_t>(a.m);
  x.stride_bytes[1] = static_cast<uint64_t>(a.x_stride) * 2;
  x.box_rows = static_cast<uint32_t>(a.m);
  if (cudaError_t e = encode_tile_map(x, &p.x_map); e != cudaSuccess) return e;
  if constexpr (!S::kIsInt4) {
    TileMap w;
    w.base = a.weight;
    w.element_bytes = S::kIsBF16 ? 2 : 1;
    w.size[0] = static_cast<uint64_t>(a.k);
    w.size[1] = static_cast<uint64_t>(a.n);
    w.stride_bytes[1] = static_cast<uint64_t>(a.k) * static_cast<uint64_t>(w.element_bytes);
    w.box_rows = 16;
    if (cudaError_t e = encode_tile_map(w, &p.weight_map); e != cudaSuccess) return e;
  }
  p.blocks = static_cast<const std::byte*>(a.weight);
  p.scale = a.scale;
  p.bias = a.bias;
  p.residual = a.residual;
  p.out = a.out;
  p.out_stride = a.out_stride;
  p.m = a.m;
  p.n = a.n;
  p.units = units_of(a);
  p.k_boxes = (a.k + S::kBoxInputs - 1) / S::kBoxInputs;
  p.silu = a.epilogue == SmallMEpilogue::kSiluMul;
  p.out_f32 = a.out_f32;
  p.paired = is_paired(a);
  const int resident = p.paired ? 2 * kMultiprocessors : kMultiprocessors;
  const int clusters = std::min(p.units, resident / split);
  const int tiles = most_tiles(p.units, clusters, p.silu, S::kTiles);
  p.tile_bytes = static_cast<uint32_t>(tiles * S::kTileBytes);
  p.depth = S::depth(tiles, S::kBudget);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(clusters * split);
  shape.block = S::kThreads;
  // The same for every product: between kernels that want different shares of L1, the chip waits.
  shape.shared_bytes = static_cast<unsigned>(S::kBudget);
  shape.cluster = split;
  shape.programmatic = a.programmatic;
  return launch_programmatic(small_m_kernel<format, columns, split>, p, shape, stream);
}

template <SmallMWeight format>
cudaError_t launch_format(const SmallMArgs& a, cudaStream_t stream) {
  const bool halves = small_m_split(a) == 2;
  if (a.m <= 8) {
    return halves ? launch_shape<format, 8, 2>(a, stream) : launch_shape<format, 8, 1>(a, stream);
  }
  if (a.m <= 16) {
    return halves ? launch_shape<format, 16, 2>(a, stream) : launch_shape<format, 16, 1>(a, stream);
  }
  return halves ? launch_shape<format, 32, 2>(a, stream) : launch_shape<format, 32, 1>(a, stream);
}

}  // namespace

int small_m_split(const SmallMArgs& a) {
  const int boxes = (a.k + box_inputs(a.format) - 1) / box_inputs(a.format);
  if (a.epilogue == SmallMEpilogue::kSiluMul || boxes < 16) return 1;
  const int units = units_of(a);
  const double whole = occupancy(units, kMultiprocessors);
  const double halved = occupancy(units, kMultiprocessors / 2);
  // A pass of four tiles reads x half as often as one of two.
  return halved > whole + 0.01 || (halved > whole - 0.01 && units <= 2 * kMultiprocessors) ? 2 : 1;
}

bool supports(const SmallMArgs& a) {
  if (a.m < 0 || a.m > 32 || a.n < 1 || a.k < 1) return false;
  if (a.epilogue == SmallMEpilogue::kSiluMul && a.n % 2 != 0) return false;
  return fits_format(a) && aligned(a.x) && aligned(a.weight) && a.x_stride % 8 == 0 &&
         a.x_stride >= a.k;
}

cudaError_t launch_small_m(const SmallMArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.m == 0) return cudaSuccess;
  switch (a.format) {
    case SmallMWeight::kBF16:
      return launch_format<SmallMWeight::kBF16>(a, stream);
    case SmallMWeight::kFp8:
      return launch_format<SmallMWeight::kFp8>(a, stream);
    case SmallMWeight::kInt4G128:
      return launch_format<SmallMWeight::kInt4G128>(a, stream);
  }
  return cudaErrorNotSupported;
}

}  // namespace pelton::kernels::cuda
