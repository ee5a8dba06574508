#include "base/check.h"
#include "kernels/cpu/levels.h"

namespace pelton::kernels {
namespace {

CpuKernels make_generic() {
  CpuKernels kernels;
  kernels.level = IsaLevel::kGeneric;
  generic::fill_matmul(kernels.matmul);
  generic::fill_rows(kernels.rows);
  generic::fill_attention(kernels.attention);
  return kernels;
}

CpuKernels make_avx2() {
  CpuKernels kernels = generic_kernels();
  kernels.level = IsaLevel::kAvx2;
  avx2::fill_matmul(kernels.matmul);
  avx2::fill_rows(kernels.rows);
  avx2::fill_attention(kernels.attention);
  return kernels;
}

CpuKernels make_avx512() {
  CpuKernels kernels = avx2_kernels();
  kernels.level = IsaLevel::kAvx512;
  avx512::fill_matmul(kernels.matmul);
  avx512::fill_rows(kernels.rows);
  avx512::fill_attention(kernels.attention);
  return kernels;
}

CpuKernels make_amx() {
  CpuKernels kernels = avx512_kernels();
  kernels.level = IsaLevel::kAmx;
  amx::fill_matmul(kernels.matmul);
  amx::fill_attention(kernels.attention);
  return kernels;
}

}  // namespace

const CpuKernels& generic_kernels() {
  static const CpuKernels kernels = make_generic();
  return kernels;
}

const CpuKernels& avx2_kernels() {
  static const CpuKernels kernels = make_avx2();
  return kernels;
}

const CpuKernels& avx512_kernels() {
  static const CpuKernels kernels = make_avx512();
  return kernels;
}

const CpuKernels& amx_kernels() {
  static const CpuKernels kernels = make_amx();
  return kernels;
}

const CpuKernels& kernels_for(IsaLevel level) {
  switch (level) {
    case IsaLevel::kGeneric:
      return generic_kernels();
    case IsaLevel::kAvx2:
      return avx2_kernels();
    case IsaLevel::kAvx512:
      return avx512_kernels();
    case IsaLevel::kAmx:
      return amx_kernels();
  }
  check(false, "unknown ISA level");
  return generic_kernels();
}

}  // namespace pelton::kernels
