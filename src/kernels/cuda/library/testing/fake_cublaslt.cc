// A libcublasLt for tests: the entry points that Pelton uses, over matrices in host memory, one
// multiply-add after another. It counts how often it is asked for an algorithm, and refuses one
// that was asked for with fewer columns.
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int kFloat = 0;
constexpr int kBF16 = 14;
constexpr int kE4M3 = 28;

struct Description {
  int32_t transpose_a = 0;
  int32_t scale_mode = 0;  // of either operand
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};
struct Layout {
  int type;
  uint64_t rows;
  uint64_t columns;
  int64_t stride;
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

int algorithms_asked_for = 0;

float from_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  float value = exponent == 0 ? mantissa / 512.0f : (8.0f + mantissa) / 512.0f;
  for (int i = 1; i < exponent; ++i) value *= 2.0f;
  return (code & 0x80) != 0 ? -value : value;
}

float load(const void* data, int type, int64_t at) {
  float value;
  if (type == kE4M3) return from_e4m3(static_cast<const uint8_t*>(data)[at]);
  if (type == kFloat) return static_cast<const float*>(data)[at];
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(data)[at]) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store(void* data, int type, int64_t at, float value) {
  if (type == kFloat) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  static_cast<uint16_t*>(data)[at] =
      static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float scale_of(const float* scales, int32_t mode, uint64_t at) {
  if (scales == nullptr) return 1.0f;
  return mode == 0 ? scales[0] : scales[at];
}

}  // namespace

extern "C" {

int fake_algorithms_asked_for() { return algorithms_asked_for; }

int cublasLtCreate(void** handle) {
  *handle = new int(0);
  return 0;
}
int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return 0;
}
int cublasLtMatmulDescCreate(void** description, int compute, int scale) {
  *description = new Description;
  return compute == 68 && scale == kFloat ? 0 : 7;
}
int cublasLtMatmulDescDestroy(void* description) {
  delete static_cast<Description*>(description);
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value,
                                   size_t bytes) {
  auto* d = static_cast<Description*>(description);
  if (attribute == 3) std::memcpy(&d->transpose_a, value, bytes);
  if (attribute == 17) std::memcpy(&d->a_scale, value, bytes);
  if (attribute == 18) std::memcpy(&d->b_scale, value, bytes);
  if (attribute == 31 || attribute == 32) std::memcpy(&d->scale_mode, value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t stride) {
  *layout = new Layout{type, rows, columns, stride};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  if (attribute != 3) return 7;
  std::memcpy(&static_cast<Layout*>(layout)->columns, value, bytes);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new int(0);
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<int*>(preference);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* /*preference*/, int /*attribute*/,
                                         const void* /*value*/, size_t /*bytes*/) {
  return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* /*description*/, void* a, void* /*b*/,
                                   void* /*c*/, void* d, void* /*preference*/, int /*most*/,
                                   void* result, int* count) {
  auto* found = static_cast<Heuristic*>(result);
  ++algorithms_asked_for;
  *found = {};
  found->algorithm[0] = static_cast<Layout*>(d)->columns;
  // Of the kind that the library has nothing for.
  *count = static_cast<Layout*>(a)->rows % 16 == 0 ? 1 : 0;
  return 0;
}

int cublasLtMatmul(void* /*handle*/, void* description, const void* alpha, const void* a,
                   void* a_layout, const void* b, void* b_layout, const void* beta, const void* c,
                   void* c_layout, void* d, void* d_layout, const void* algorithm,
                   void* /*workspace*/, size_t /*bytes*/, void* /*stream*/) {
  const auto& desc = *static_cast<Description*>(description);
  const auto& la = *static_cast<Layout*>(a_layout);
  const auto& lb = *static_cast<Layout*>(b_layout);
  const auto& lc = *static_cast<Layout*>(c_layout);
  const auto& ld = *static_cast<Layout*>(d_layout);
  const bool fits = desc.transpose_a == 1 && la.rows == lb.rows && la.columns == ld.rows &&
                    lb.columns == ld.columns && lc.columns == ld.columns;
  if (!fits || *static_cast<const uint64_t*>(algorithm) < ld.columns) return 7;
  const float factor = *static_cast<const float*>(alpha);
  const float old = *static_cast<const float*>(beta);
  for (uint64_t j = 0; j < ld.columns; ++j) {
    for (uint64_t i = 0; i < ld.rows; ++i) {
      float sum = 0;
      for (uint64_t k = 0; k < la.rows; ++k) {
        sum += load(a, la.type, static_cast<int64_t>(k) + static_cast<int64_t>(i) * la.stride) *
               load(b, lb.type, static_cast<int64_t>(k) + static_cast<int64_t>(j) * lb.stride);
      }
      sum *= factor * scale_of(desc.a_scale, desc.scale_mode, i) *
             scale_of(desc.b_scale, desc.scale_mode, j);
      const auto at = static_cast<int64_t>(i) + static_cast<int64_t>(j) * ld.stride;
      if (old != 0) sum += old * load(c, lc.type, at);
      store(d, ld.type, at, sum);
    }
  }
  return 0;
}

}  // extern "C"
