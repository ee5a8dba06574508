#include "base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

namespace pelton {
namespace {

bool amx_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr unsigned long kTileData = 18;      // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::string read_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "unknown processor";
}

CpuFeatures detect() {
  CpuFeatures f;
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) f.avx2 = f.avx2 && (c & (1u << 29)) != 0;  // F16C
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  if (f.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    f.avx512_vnni = (c & (1u << 11)) != 0;
    const bool tile = (d & (1u << 24)) != 0;
    const bool int8 = (d & (1u << 25)) != 0;
    const bool bf16 = (d & (1u << 22)) != 0;
    f.amx_tile = tile && int8 && bf16 && amx_permitted();
    f.amx_int8 = f.amx_tile;
    f.amx_bf16 = f.amx_tile;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) f.avx512_bf16 = (a & (1u << 5)) != 0;
  }
  f.model_name = read_model_name();
  return f;
}

}  // namespace

const char* isa_level_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kGeneric:
      return "generic";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
    case IsaLevel::kAmx:
      return "amx";
  }
  return "unknown";
}

IsaLevel CpuFeatures::best_level() const {
  const bool full_avx512 = avx512 && avx512_vnni && avx512_bf16;
  if (full_avx512 && amx_int8 && amx_bf16) return IsaLevel::kAmx;
  if (full_avx512) return IsaLevel::kAvx512;
  return avx2 ? IsaLevel::kAvx2 : IsaLevel::kGeneric;
}

std::string CpuFeatures::to_string() const {
  std::string text;
  const auto add = [&text](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(avx2, "avx2");
  add(avx512, "avx512");
  add(avx512_vnni, "avx512_vnni");
  add(avx512_bf16, "avx512_bf16");
  add(amx_int8, "amx_int8");
  add(amx_bf16, "amx_bf16");
  return text.empty() ? "generic" : text;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace pelton
