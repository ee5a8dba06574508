#include <cstdint>

#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/cuda/matmul/small_m.h"
#include "kernels/cuda/matmul/small_m_launch.h"

namespace pelton::kernels::cuda {

namespace {

int box_inputs(SmallMWeight format) { return format == SmallMWeight::kBF16 ? 64 : 128; }

// Share of the chip at work when `units` are spread over `workers`.
double occupancy(int units, int workers) {
  return units / (static_cast<double>((units + workers - 1) / workers) * workers);
}

constexpr int kMostNormBytes = 32 * 1024;
constexpr int kLongBoxes = 64;

}  // namespace

bool fits_format(const SmallMArgs& a) {
  switch (a.format) {
    case SmallMWeight::kBF16:
      return a.k % 8 == 0;
    case SmallMWeight::kFp8:
    case SmallMWeight::kInt8:
      return a.k % 16 == 0 && a.scale != nullptr;
    case SmallMWeight::kInt4G128:
      return a.k % kInt4Group == 0 && (a.epilogue == SmallMEpilogue::kNone || a.n % 32 == 0);
  }
  return false;
}

int small_m_split(const SmallMArgs& a) {
  const int boxes = (a.k + box_inputs(a.format) - 1) / box_inputs(a.format);
  if (a.epilogue == SmallMEpilogue::kSiluMul || boxes < 16) return 1;
  const int units = small_m_units(a);
  const double whole = occupancy(units, kSmallMMultiprocessors);
  const double halved = occupancy(units, kSmallMMultiprocessors / 2);
  if (halved > whole + 0.01) return 2;
  if (halved < whole - 0.01) return 1;
  // A block of one tile leaves half of its warps without one. Two tiles are as good as four of half
  // of K and need no exchange of sums, but where each warp then makes integers' operands for one
  // tile alone over a long K. BF16, of twice the bytes, gains by it alone and not in a step.
  const bool prefers_halves =
      a.format == SmallMWeight::kBF16 || (a.format != SmallMWeight::kFp8 && boxes > kLongBoxes);
  return units <= (prefers_halves ? 2 : 1) * kSmallMMultiprocessors ? 2 : 1;
}

bool small_m_fits_norm(int64_t m, int64_t k) {
  return m <= 8 && k % 8 == 0 && m * ((k + 127) / 128 * 128) * 2 <= kMostNormBytes;
}

bool supports(const SmallMArgs& a) {
  if (a.m < 0 || a.m > 32 || a.n < 1 || a.k < 1) return false;
  if (a.epilogue == SmallMEpilogue::kSiluMul && a.n % 2 != 0) return false;
  if (a.norm_weight != nullptr && (!small_m_fits_norm(a.m, a.k) || !aligned(a.norm_weight))) {
    return false;
  }
  return fits_format(a) && aligned(a.x) && aligned(a.weight) && a.x_stride % 8 == 0 &&
         a.x_stride >= a.k;
}

cudaError_t launch_small_m(const SmallMArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.m == 0) return cudaSuccess;
  switch (a.format) {
    case SmallMWeight::kBF16:
      return launch_small_m_bf16(a, stream);
    case SmallMWeight::kFp8:
      return launch_small_m_fp8(a, stream);
    case SmallMWeight::kInt8:
      return launch_small_m_int8(a, stream);
    case SmallMWeight::kInt4G128:
      return launch_small_m_int4(a, stream);
  }
  return cudaErrorNotSupported;
}

}  // namespace pelton::kernels::cuda
