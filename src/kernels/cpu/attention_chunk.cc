#include <algorithm>
#include <bit>

#include "kernels/cpu/attention_kernels.h"

namespace pelton::kernels {

int32_t attention_chunk(int32_t visible) {
  constexpr uint32_t kChunks = 16;
  constexpr uint32_t kShortest = 256;
  const uint32_t ceiling = std::bit_ceil(static_cast<uint32_t>(std::max(visible, 1)));
  return static_cast<int32_t>(std::max(kShortest, ceiling / kChunks));
}

const char* kv_format_name(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return "f32";
    case KvFormat::kF16:
      return "f16";
    case KvFormat::kBF16:
      return "bf16";
    case KvFormat::kFp8:
      return "fp8";
    case KvFormat::kInt8:
      return "int8";
  }
  return "unknown";
}

}  // namespace pelton::kernels
