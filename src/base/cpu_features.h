// What this processor and this kernel let a program use.
#pragma once

#include <string>

namespace pelton {

// Kernel levels, narrowest first; each includes the ones before it.
enum class IsaLevel { kGeneric, kAvx2, kAvx512, kAmx };
const char* isa_level_name(IsaLevel level);  // "generic", "avx2", "avx512", "amx"

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, CD, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_tile = false;  // tile state permitted by the kernel, not merely present
  bool amx_int8 = false;
  bool amx_bf16 = false;
  std::string model_name;  // "AMD EPYC ...", from /proc/cpuinfo

  // Widest level whose every instruction is here. kAvx512 asks for VNNI and BF16 too.
  IsaLevel best_level() const;
  // "avx2 avx512 avx512_vnni ..."
  std::string to_string() const;
};

// Detected once; asks the kernel for AMX tile permission.
const CpuFeatures& cpu_features();

}  // namespace pelton
