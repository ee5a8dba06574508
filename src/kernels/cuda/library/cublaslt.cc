#include "kernels/cuda/library/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <string>

namespace pelton::kernels::cuda {
namespace {

// Values of the library's enumerations.
constexpr int kTypeFloat = 0;
constexpr int kTypeBF16 = 14;
constexpr int kTypeE4M3 = 28;
constexpr int kComputeFloat = 68;
constexpr int kTransposeA = 3;
constexpr int kScalePointerA = 17;
constexpr int kScalePointerB = 18;
constexpr int kFastAccumulation = 25;
constexpr int kScaleModeA = 31;
constexpr int kScaleModeB = 32;
constexpr int32_t kScaleEachRow = 3;
constexpr int kColumns = 3;  // of a layout
constexpr int kBatchCount = 5;
constexpr int kBatchStep = 6;
constexpr int kWorkspaceLimit = 1;
constexpr int kReductionMask = 3;
constexpr int kAlignmentA = 5;  // B, C and D follow
constexpr uint32_t kAlignment = 16;
constexpr uint32_t kReduceInFloat = 2;

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
using GetHeuristic = int (*)(void*, void*, void*, void*, void*, void*, void*, int, void*, int*);
using Matmul = int (*)(void*, void*, const void*, const void*, void*, const void*, void*,
                       const void*, const void*, void*, void*, void*, const void*, void*, size_t,
                       void*);

template <typename F>
bool load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// Products of nearby m share an algorithm: an eighth of a power of two, at least 8 rows, apart.
int64_t bucket_of(int64_t m) {
  const auto whole =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(m, 1))));
  const int64_t step = std::max<int64_t>(8, whole / 8);
  return (m + step - 1) / step * step;
}

std::string to_string(const CublasLtProblem& p) {
  return "m " + std::to_string(p.m) + ", n " + std::to_string(p.n) + ", k " + std::to_string(p.k) +
         (p.type == CublasLtType::kFp8 ? ", fp8" : ", bf16");
}

}  // namespace

struct CublasLt::State {
  // The library is column-major: its A is W, its B is x.
  struct Plan {
    void* desc = nullptr;
    void* a = nullptr;
    void* b = nullptr;
    void* d = nullptr;
    Heuristic choice = {};
    int64_t m = 0;  // that the layouts say now
    bool found = false;
  };
  void* handle = nullptr;
  Create create = nullptr;
  Destroy destroy = nullptr;
  DescCreate desc_create = nullptr;
  Destroy desc_destroy = nullptr;
  SetAttribute desc_set = nullptr;
  LayoutCreate layout_create = nullptr;
  Destroy layout_destroy = nullptr;
  SetAttribute layout_set = nullptr;
  Create preference_create = nullptr;
  Destroy preference_destroy = nullptr;
  SetAttribute preference_set = nullptr;
  GetHeuristic heuristic = nullptr;
  Matmul matmul = nullptr;
  std::mutex mutex;
  std::map<CublasLtProblem, Plan> plans;

  bool load_all(void* library) {
    return load(library, "cublasLtCreate", create) && load(library, "cublasLtDestroy", destroy) &&
           load(library, "cublasLtMatmulDescCreate", desc_create) &&
           load(library, "cublasLtMatmulDescDestroy", desc_destroy) &&
           load(library, "cublasLtMatmulDescSetAttribute", desc_set) &&
           load(library, "cublasLtMatrixLayoutCreate", layout_create) &&
           load(library, "cublasLtMatrixLayoutDestroy", layout_destroy) &&
           load(library, "cublasLtMatrixLayoutSetAttribute", layout_set) &&
           load(library, "cublasLtMatmulPreferenceCreate", preference_create) &&
           load(library, "cublasLtMatmulPreferenceDestroy", preference_destroy) &&
           load(library, "cublasLtMatmulPreferenceSetAttribute", preference_set) &&
           load(library, "cublasLtMatmulAlgoGetHeuristic", heuristic) &&
           load(library, "cublasLtMatmul", matmul);
  }

  bool describe(const CublasLtProblem& p, Plan& plan) {
    const int32_t transpose = 1;
    const int8_t fast = p.fast_accumulation ? 1 : 0;
    const bool is_fp8 = p.type == CublasLtType::kFp8;
    const int operand = is_fp8 ? kTypeE4M3 : kTypeBF16;
    const auto m = static_cast<uint64_t>(p.m);
    const auto n = static_cast<uint64_t>(p.n);
    const auto k = static_cast<uint64_t>(p.k);
    bool good = desc_create(&plan.desc, kComputeFloat, kTypeFloat) == 0 &&
                desc_set(plan.desc, kTransposeA, &transpose, sizeof transpose) == 0;
    if (is_fp8) {
      good = good && desc_set(plan.desc, kFastAccumulation, &fast, sizeof fast) == 0;
    }
    if (p.row_scales) {
      // The choice wants to see that there are scales; they are not read.
      const auto* scales = reinterpret_cast<const float*>(uintptr_t{256});
      good = good && set_scales(plan, {.x_scale = scales, .w_scale = scales}) &&
             desc_set(plan.desc, kScaleModeA, &kScaleEachRow, sizeof kScaleEachRow) == 0 &&
             desc_set(plan.desc, kScaleModeB, &kScaleEachRow, sizeof kScaleEachRow) == 0;
    }
    return good && layout_create(&plan.a, operand, k, n, p.k) == 0 &&
           layout_create(&plan.b, operand, k, m, p.x_stride == 0 ? p.k : p.x_stride) == 0 &&
           layout_create(&plan.d, p.out_f32 ? kTypeFloat : kTypeBF16, n, m,
                         p.out_stride == 0 ? p.n : p.out_stride) == 0 &&
           set_batch(plan.a, p.batch, p.weight_step) && set_batch(plan.b, p.batch, p.x_step) &&
           set_batch(plan.d, p.batch, p.out_step);
  }

  bool set_batch(void* layout, int32_t count, int64_t step) const {
    return count == 1 || (layout_set(layout, kBatchCount, &count, sizeof count) == 0 &&
                          layout_set(layout, kBatchStep, &step, sizeof step) == 0);
  }

  bool find(const CublasLtProblem& p, Plan& plan) {
    void* preference = nullptr;
    const size_t limit = kWorkspace - kWorkspaceAlignment;
    const uint32_t reductions = p.may_split ? kReduceInFloat : 0;
    int count = 0;
    if (preference_create(&preference) != 0) return false;
    bool good = preference_set(preference, kWorkspaceLimit, &limit, sizeof limit) == 0 &&
                preference_set(preference, kReductionMask, &reductions, sizeof reductions) == 0;
    for (int operand = 0; operand < 4; ++operand) {
      good = good &&
             preference_set(preference, kAlignmentA + operand, &kAlignment, sizeof kAlignment) == 0;
    }
    const bool found = good &&
                       heuristic(handle, plan.desc, plan.a, plan.b, plan.d, plan.d, preference, 1,
                                 &plan.choice, &count) == 0 &&
                       count == 1 && plan.choice.status == 0;
    preference_destroy(preference);
    return found;
  }

  // The library's calls for a problem; new ones are asked for at the bucket's m.
  Plan& plan_for(CublasLtProblem p) {
    p.m = bucket_of(p.m);
    auto [at, is_new] = plans.try_emplace(p);
    Plan& plan = at->second;
    if (is_new) {
      plan.found = describe(p, plan) && find(p, plan);
      plan.m = p.m;
    }
    return plan;
  }

  bool set_rows(Plan& plan, int64_t m) const {
    if (plan.m == m) return true;
    const auto columns = static_cast<uint64_t>(m);
    plan.m = 0;
    for (void* layout : {plan.b, plan.d}) {
      if (layout_set(layout, kColumns, &columns, sizeof columns) != 0) return false;
    }
    plan.m = m;
    return true;
  }

  bool set_scales(const Plan& plan, const CublasLtOperands& o) const {
    return desc_set(plan.desc, kScalePointerA, &o.w_scale, sizeof o.w_scale) == 0 &&
           desc_set(plan.desc, kScalePointerB, &o.x_scale, sizeof o.x_scale) == 0;
  }

  ~State() {
    for (auto& [problem, plan] : plans) {
      if (plan.desc != nullptr) desc_destroy(plan.desc);
      for (void* layout : {plan.a, plan.b, plan.d}) {
        if (layout != nullptr) layout_destroy(layout);
      }
    }
    if (handle != nullptr) destroy(handle);
  }
};

CublasLt::CublasLt() : state_(std::make_unique<State>()) {}
CublasLt::~CublasLt() = default;

std::unique_ptr<CublasLt> CublasLt::open(const LibrarySearch& search, std::string* why) {
  constexpr std::array<std::string_view, 2> kNames = {"libcublasLt.so.13", "libcublasLt.so.12"};
  void* library = open_library(kNames, search);
  if (library == nullptr) {
    *why = "no libcublasLt.so.13 or .so.12 can be opened";
    return nullptr;
  }
  std::unique_ptr<CublasLt> lt(new CublasLt);
  if (Dl_info info; dladdr(dlsym(library, "cublasLtCreate"), &info) != 0)
    lt->path_ = info.dli_fname;
  if (!lt->state_->load_all(library)) {
    *why = "libcublasLt lacks an entry point";
    return nullptr;
  }
  if (const int code = lt->state_->create(&lt->state_->handle); code != 0) {
    *why = "cublasLtCreate: status " + std::to_string(code);
    return nullptr;
  }
  return lt;
}

bool CublasLt::prepare(const CublasLtProblem& problem) {
  const std::scoped_lock lock(state_->mutex);
  return state_->plan_for(problem).found;
}

std::string CublasLt::product(const CublasLtProblem& problem, const CublasLtOperands& operands,
                              void* stream) {
  State& s = *state_;
  const std::scoped_lock lock(s.mutex);
  State::Plan& plan = s.plan_for(problem);
  if (!plan.found) return "cuBLASLt has no algorithm for " + to_string(problem);
  if (problem.type == CublasLtType::kFp8 && !s.set_scales(plan, operands)) {
    return "cuBLASLt takes no scales for " + to_string(problem);
  }
  if (!s.set_rows(plan, problem.m)) return "cuBLASLt takes no such layout: " + to_string(problem);
  const uintptr_t past = reinterpret_cast<uintptr_t>(operands.workspace) % kWorkspaceAlignment;
  auto* const workspace =
      static_cast<std::byte*>(operands.workspace) + (past == 0 ? 0 : kWorkspaceAlignment - past);
  const float one = 1.0f;
  const float old = problem.accumulate ? 1.0f : 0.0f;
  const int code = s.matmul(s.handle, plan.desc, &one, operands.weight, plan.a, operands.x, plan.b,
                            &old, operands.out, plan.d, operands.out, plan.d, plan.choice.algorithm,
                            workspace, kWorkspace - kWorkspaceAlignment, stream);
  if (code == 0) return {};
  return "cublasLtMatmul: status " + std::to_string(code) + ", " + to_string(problem);
}

}  // namespace pelton::kernels::cuda
