// Times of compute-bound products against cuBLASLt, and of the products of an 8B model's layer at
// the sizes of large decode batches and prefill chunks.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "harness.h"
#include "kernels/cuda/matmul/gemm.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::GemmArgs;
using kernels::cuda::GemmEpilogue;
using kernels::cuda::GemmScales;
using kernels::cuda::GemmType;

struct Shape {
  std::string name;
  int m;
  int n;
  int k;
  bool silu = false;
  bool adds = false;  // to f32 rows, as to a residual stream
};

struct Variant {
  const char* name;
  GemmType type;
  GemmScales scales;
  bool promote;
  int splits = 1;
};
constexpr Variant kSplit = {"fp8", GemmType::kFp8, GemmScales::kRows, false, 2};
constexpr Variant kVariants[] = {{"bf16", GemmType::kBF16, GemmScales::kNone, false},
                                 {"fp8", GemmType::kFp8, GemmScales::kRows, false},
                                 {"fp8 promoted", GemmType::kFp8, GemmScales::kRows, true},
                                 {"fp8 blocks", GemmType::kFp8, GemmScales::kBlocks, true},
                                 {"int8", GemmType::kInt8, GemmScales::kRows, false}};

// Copies of the weights in turn, more than 400 MB of them.
struct Pool {
  Buffer x;
  Buffer weights;
  Buffer scales;
  Buffer out;
  Buffer split_sums;
  int copies = 1;
  int launches = 1;
};

Pool make_pool(const Shape& s, bool is_fp8) {
  const size_t bytes = is_fp8 ? 1 : 2;
  const size_t weight = static_cast<size_t>(s.n) * static_cast<size_t>(s.k) * bytes;
  Pool pool;
  pool.copies = static_cast<int>(std::max<size_t>(1, (size_t{512} << 20) / weight));
  pool.launches = s.m >= 4096 ? 2 : std::clamp(pool.copies, 4, 16);
  pool.x = Buffer(static_cast<size_t>(s.m) * static_cast<size_t>(s.k) * bytes);
  pool.weights = Buffer(weight * static_cast<size_t>(pool.copies));
  fill(pool.x, is_fp8 ? Fill::kNormalFp8 : Fill::kNormalBF16, 1.0f, 1);
  fill(pool.weights, is_fp8 ? Fill::kNormalFp8 : Fill::kNormalBF16, is_fp8 ? 1.0f : 0.03f, 2);
  pool.scales = Buffer((static_cast<size_t>(s.m) + static_cast<size_t>(s.n)) *
                       (static_cast<size_t>(s.k) / 128 + 1) * 4);
  fill(pool.scales, Fill::kFloats, 0.05f, 3);
  if (s.m <= 256) pool.split_sums = Buffer(static_cast<size_t>(s.m) * static_cast<size_t>(s.n) * 8);
  pool.out = Buffer(static_cast<size_t>(s.m) * static_cast<size_t>(s.n) * (s.adds ? 4 : 2));
  return pool;
}

Timed time_ours(const Shape& s, const Variant& v, const Pool& pool) {
  const size_t bytes = v.type == GemmType::kBF16 ? 2 : 1;
  GemmArgs a;
  a.x = pool.x.as<void>();
  a.x_stride = s.k;
  a.type = v.type;
  a.scales = v.scales;
  a.promote = v.promote;
  if (v.scales != GemmScales::kNone) {
    a.x_scale = pool.scales.as<float>();
    a.w_scale = pool.scales.as<float>(static_cast<size_t>(s.m) * 4 *
                                      (static_cast<size_t>(s.k) / 128 + 1) / 16 * 16);
  }
  a.epilogue = s.silu ? GemmEpilogue::kSiluMul : GemmEpilogue::kNone;
  a.out = pool.out.as<void>();
  a.out_stride = s.silu ? s.n / 2 : s.n;
  if (s.adds) {
    a.out_f32 = true;
    a.residual = pool.out.as<float>();
    a.residual_stride = a.out_stride;
  }
  a.m = s.m;
  a.n = s.n;
  a.k = s.k;
  a.splits = v.splits;
  if (v.splits > 1) a.split_sums = pool.split_sums.as<float>();
  Timed t;
  t.row = {"gemm",
           std::string(v.name) + " " + s.name,
           v.splits == 1 ? "pelton" : "pelton, K in " + std::to_string(v.splits),
           0,
           0,
           0,
           0};
  t.row.bytes = static_cast<double>(bytes) * s.n * s.k;
  t.row.flops = 2.0 * s.m * s.n * s.k;
  t.launches = pool.launches;
  const size_t weight = static_cast<size_t>(s.n) * static_cast<size_t>(s.k) * bytes;
  t.record = [a, &pool, weight](cudaStream_t stream) {
    for (int i = 0; i < pool.launches; ++i) {
      GemmArgs b = a;
      b.weight = pool.weights.as<void>(static_cast<size_t>(i % pool.copies) * weight);
      require(kernels::cuda::launch_gemm(b, stream), "launch");
    }
  };
  return t;
}

void bench_shape(Report& report, const Shape& s, GemmType type, CublasLt* library) {
  const bool is_fp8 = type == GemmType::kFp8;
  const Pool pool = make_pool(s, is_fp8);
  std::vector<Timed> cases;
  for (const Variant& v : kVariants) {
    // Random bytes do for either kind of codes.
    if (v.type == type || (is_fp8 && v.type == GemmType::kInt8))
      cases.push_back(time_ours(s, v, pool));
  }
  if (is_fp8 && s.m > 128 && s.m <= 256 && !s.silu) cases.push_back(time_ours(s, kSplit, pool));
  const size_t weight = pool.weights.bytes() / static_cast<size_t>(pool.copies);
  struct Library {
    const char* name;
    bool fast;
    bool rows;  // a scale for each, else for each tensor
  };
  for (const Library& l :
       {Library{"cublaslt", false, false}, Library{"cublaslt, fast", true, false},
        Library{"cublaslt, fast, rows", true, true}}) {
    kernels::cuda::CublasLtProblem problem;
    problem.m = s.m;
    problem.n = s.n;
    problem.k = s.k;
    problem.type = is_fp8 ? kernels::cuda::CublasLtType::kFp8 : kernels::cuda::CublasLtType::kBF16;
    problem.fast_accumulation = l.fast;
    problem.row_scales = l.rows;
    problem.out_f32 = problem.accumulate = s.adds;
    if (library == nullptr || (l.fast && !is_fp8) || !library->prepare(problem)) continue;
    Timed t = cases.front();
    t.row.variant = l.name;
    const bool has_scales = l.rows;
    t.record = [=, &pool, &report](cudaStream_t stream) {
      for (int i = 0; i < pool.launches; ++i) {
        kernels::cuda::CublasLtOperands operands;
        operands.x = pool.x.as<void>();
        operands.weight = pool.weights.as<void>(static_cast<size_t>(i % pool.copies) * weight);
        operands.out = pool.out.as<void>();
        if (has_scales) {
          operands.x_scale = pool.scales.as<float>();
          operands.w_scale = pool.scales.as<float>(static_cast<size_t>(s.m) * 4);
        }
        check(report, library->product(problem, operands, stream), "cublaslt");
      }
    };
    cases.push_back(t);
  }
  time_interleaved(cases, 7, report);
}

}  // namespace

void bench_gemm(Report& report, bool quick) {
  const std::unique_ptr<CublasLt> library = CublasLt::open();
  for (const GemmType type : {GemmType::kBF16, GemmType::kFp8}) {
    for (const int size : {4096, 8192, 16384}) {
      if (quick && size == 16384) continue;
      bench_shape(report, {std::to_string(size) + "^3", size, size, size}, type, library.get());
    }
    for (const int m : {64, 128, 256, 2048, 8192}) {
      if (quick && (m == 128 || m == 2048)) continue;
      const std::string suffix = " m" + std::to_string(m);
      bench_shape(report, {"qkv" + suffix, m, 6144, 4096}, type, library.get());
      bench_shape(report, {"o" + suffix, m, 4096, 4096, false, true}, type, library.get());
      bench_shape(report, {"gate_up" + suffix, m, 28672, 4096, true}, type, library.get());
      bench_shape(report, {"down" + suffix, m, 4096, 14336, false, true}, type, library.get());
    }
  }
}

}  // namespace pelton::bench_cuda
