#include "cublaslt.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>

#include "harness.h"

namespace pelton::bench_cuda {

namespace {

constexpr int kBF16 = 14;           // CUDA_R_16BF
constexpr int kFloat = 0;           // CUDA_R_32F
constexpr int kComputeFloat = 68;   // CUBLAS_COMPUTE_32F
constexpr int kTransposeA = 3;      // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kWorkspaceLimit = 1;  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

using Create = int (*)(void**);
using Destroy = int (*)(void*);
using DescCreate = int (*)(void**, int, int);
using SetAttribute = int (*)(void*, int, const void*, size_t);
using LayoutCreate = int (*)(void**, int, uint64_t, uint64_t, int64_t);
using GetHeuristic = int (*)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*,
                             int*);
using Matmul = int (*)(void*, void*, const void*, const void*, void*, const void*, void*,
                       const void*, const void*, void*, void*, void*, const void*, void*, size_t,
                       cudaStream_t);

template <typename F>
bool load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct CublasLt::State {
  struct Plan {
    void* desc = nullptr;
    void* a = nullptr;
    void* b = nullptr;
    void* d = nullptr;
    Heuristic choice = {};
    bool found = false;
  };
  void* handle = nullptr;
  Create create = nullptr;
  DescCreate desc_create = nullptr;
  SetAttribute desc_set = nullptr;
  LayoutCreate layout_create = nullptr;
  Create preference_create = nullptr;
  SetAttribute preference_set = nullptr;
  GetHeuristic heuristic = nullptr;
  Matmul matmul = nullptr;
  Buffer workspace{size_t{32} << 20};
  std::map<std::tuple<int, int, int>, Plan> plans;
};

std::unique_ptr<CublasLt> CublasLt::open() {
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return nullptr;
  std::unique_ptr<CublasLt> lt(new CublasLt);
  lt->state_ = std::make_unique<State>();
  State& s = *lt->state_;
  const bool loaded = load(library, "cublasLtCreate", s.create) &&
                      load(library, "cublasLtMatmulDescCreate", s.desc_create) &&
                      load(library, "cublasLtMatmulDescSetAttribute", s.desc_set) &&
                      load(library, "cublasLtMatrixLayoutCreate", s.layout_create) &&
                      load(library, "cublasLtMatmulPreferenceCreate", s.preference_create) &&
                      load(library, "cublasLtMatmulPreferenceSetAttribute", s.preference_set) &&
                      load(library, "cublasLtMatmulAlgoGetHeuristic", s.heuristic) &&
                      load(library, "cublasLtMatmul", s.matmul);
  if (!loaded || s.create(&s.handle) != 0) return nullptr;
  return lt;
}

CublasLt::~CublasLt() = default;

bool CublasLt::product(const void* x, const void* w, void* out, int m, int n, int k,
                       cudaStream_t stream) {
  State& s = *state_;
  auto [at, is_new] = s.plans.try_emplace({m, n, k});
  State::Plan& plan = at->second;
  if (is_new) {
    const int transpose = 1;
    void* preference = nullptr;
    const size_t limit = s.workspace.bytes();
    int count = 0;
    s.desc_create(&plan.desc, kComputeFloat, kFloat);
    s.desc_set(plan.desc, kTransposeA, &transpose, sizeof transpose);
    s.layout_create(&plan.a, kBF16, static_cast<uint64_t>(k), static_cast<uint64_t>(n), k);
    s.layout_create(&plan.b, kBF16, static_cast<uint64_t>(k), static_cast<uint64_t>(m), k);
    s.layout_create(&plan.d, kBF16, static_cast<uint64_t>(n), static_cast<uint64_t>(m), n);
    s.preference_create(&preference);
    s.preference_set(preference, kWorkspaceLimit, &limit, sizeof limit);
    plan.found = s.heuristic(s.handle, plan.desc, plan.a, plan.b, plan.d, plan.d, preference, 1,
                             &plan.choice, &count) == 0 &&
                 count == 1;
  }
  if (!plan.found) return false;
  const float one = 1.0f;
  const float zero = 0.0f;
  return s.matmul(s.handle, plan.desc, &one, w, plan.a, x, plan.b, &zero, out, plan.d, out, plan.d,
                  plan.choice.algorithm, s.workspace.as<void>(), s.workspace.bytes(), stream) == 0;
}

}  // namespace pelton::bench_cuda
