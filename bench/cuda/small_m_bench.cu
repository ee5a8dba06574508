// Times of the products of a decode step on an 8B model's shapes: each alone, and the four products
// of a layer in a chain. Weights rotate over more than 400 MB, so none is found in the cache.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cublaslt.h"
#include "harness.h"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/cuda/matmul/small_m.h"
#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::SmallMArgs;
using kernels::cuda::SmallMEpilogue;
using kernels::cuda::SmallMWeight;

struct Product {
  const char* name;
  int n;
  int k;
  SmallMEpilogue epilogue;
  bool residual;
};
constexpr Product kProducts[] = {{"qkv", 6144, 4096, SmallMEpilogue::kNone, false},
                                 {"o", 4096, 4096, SmallMEpilogue::kNone, true},
                                 {"gate_up", 28672, 4096, SmallMEpilogue::kSiluMul, false},
                                 {"down", 4096, 14336, SmallMEpilogue::kNone, true},
                                 {"head", 128256, 4096, SmallMEpilogue::kNone, false}};

constexpr const char* kFormatNames[] = {"bf16", "fp8", "int8", "int4"};

size_t weight_bytes(SmallMWeight format, int n, int k) {
  const size_t elements = static_cast<size_t>(n) * static_cast<size_t>(k);
  return format == SmallMWeight::kBF16       ? 2 * elements
         : format == SmallMWeight::kInt4G128 ? kernels::cuda::int4_packed_bytes(n, k)
                                             : elements;
}

struct Bench {
  Report& report;
  SmallMWeight format;
  Buffer pool;  // weights of all kinds are cut from it
  Buffer x;
  Buffer out;
  Buffer scale;
  CublasLt* library;

  SmallMArgs args(const Product& p, int m, size_t offset) const {
    SmallMArgs a;
    a.x = x.as<void>();
    a.x_stride = p.k;
    a.weight = pool.as<void>(offset);
    a.format = format;
    a.epilogue = p.epilogue;
    a.scale = scale.as<float>();
    a.out = out.as<void>();
    a.out_stride = p.epilogue == SmallMEpilogue::kSiluMul ? p.n / 2 : p.n;
    a.residual = p.residual ? a.out : nullptr;
    a.m = m;
    a.n = p.n;
    a.k = p.k;
    return a;
  }

  // As a decode step has it: products that add to f32 rows, and the others of these rows' norms.
  void become_part_of_step(SmallMArgs& a) const {
    if (a.residual != nullptr) {
      a.out_f32 = true;
    } else {
      a.norm_weight = scale.as<float>();
      a.norm_eps = 1e-5f;
    }
  }

  void launch(SmallMArgs a, bool wide, cudaStream_t stream) const {
    if (wide) {
      constexpr int kRows = kernels::cuda::kWideMColumns;
      const int m = a.m;
      for (int row = 0; row < m; row += kRows) {
        a.m = std::min(kRows, m - row);
        const bool is_fp8 = format == SmallMWeight::kFp8;  // x as codes
        require(kernels::cuda::launch_wide_m({a, is_fp8 ? scale.as<float>() : nullptr}, stream),
                "launch");
      }
    } else {
      require(kernels::cuda::launch_small_m(a, stream), "launch");
    }
  }

  // The product `m` rows wide, again and again over different weights.
  void add_alone(std::vector<Timed>& cases, const Product& p, int m) {
    const size_t bytes = weight_bytes(format, p.n, p.k);
    const size_t step = bytes;
    const int copies = static_cast<int>(pool.bytes() / step);
    const int launches = static_cast<int>(std::min<size_t>(64, (size_t{3} << 30) / step));
    const std::string name = std::string(kFormatNames[static_cast<int>(format)]) + " " + p.name +
                             " m" + std::to_string(m);
    enum Kind { kChained, kSerial, kWide };
    constexpr const char* kNames[] = {"pelton", "pelton, serial", "pelton, wide"};
    for (const Kind kind : {kChained, kSerial, kWide}) {
      if (kind == kSerial ? m != 1 : kind == kWide ? m < 16 : m > 32) continue;
      Timed t;
      t.row = {"small_m",          name, kNames[kind], 0, 0, static_cast<double>(bytes),
               2.0 * m * p.n * p.k};
      t.launches = launches;
      t.record = [=, this](cudaStream_t stream) {
        for (int i = 0; i < launches; ++i) {
          SmallMArgs a = args(p, m, static_cast<size_t>(i % copies) * step);
          a.programmatic = kind != kSerial;
          launch(a, kind == kWide, stream);
        }
      };
      cases.push_back(t);
    }
    if (library == nullptr || format != SmallMWeight::kBF16) return;
    Timed t;
    t.row = {"small_m", name, "cublaslt", 0, 0, static_cast<double>(bytes), 2.0 * m * p.n * p.k};
    t.launches = launches;
    t.record = [=, this](cudaStream_t stream) {
      for (int i = 0; i < launches; ++i) {
        library->product(x.as<void>(), pool.as<void>(static_cast<size_t>(i % copies) * step),
                         out.as<void>(), m, p.n, p.k, stream);
      }
    };
    cases.push_back(t);
  }

  // The four products of a layer in order, over as many layers as fill 3 GB.
  void add_layer(std::vector<Timed>& cases, int m) {
    size_t layer = 0;
    for (int i = 0; i < 4; ++i) layer += weight_bytes(format, kProducts[i].n, kProducts[i].k);
    const int layers = static_cast<int>((size_t{3} << 30) / layer);
    const std::string name =
        std::string(kFormatNames[static_cast<int>(format)]) + " layer m" + std::to_string(m);
    const auto visit = [=, this](auto&& launch) {
      size_t offset = 0;
      for (int l = 0; l < layers; ++l) {
        for (int i = 0; i < 4; ++i) {
          launch(kProducts[i], offset);
          offset += weight_bytes(format, kProducts[i].n, kProducts[i].k);
        }
      }
    };
    Timed t;
    enum Kind { kPlain, kNormed, kWide };
    constexpr const char* kNames[] = {"pelton", "pelton, normed", "pelton, wide"};
    for (const Kind kind : {kPlain, kNormed, kWide}) {
      if (kind == kWide     ? m < 16
          : kind == kNormed ? !kernels::cuda::small_m_fits_norm(m, kProducts[0].k)
                            : m > 32) {
        continue;
      }
      t.row = {"small_m", name, kNames[kind], 0, 0, static_cast<double>(layer), 0};
      t.launches = layers;
      t.record = [=, this](cudaStream_t stream) {
        visit([&](const Product& p, size_t offset) {
          SmallMArgs a = args(p, m, offset);
          if (kind == kNormed) become_part_of_step(a);
          launch(a, kind == kWide, stream);
        });
      };
      cases.push_back(t);
    }
    if (library == nullptr || format != SmallMWeight::kBF16) return;
    t.row.variant = "cublaslt";
    t.record = [=, this](cudaStream_t stream) {
      visit([&](const Product& p, size_t offset) {
        library->product(x.as<void>(), pool.as<void>(offset), out.as<void>(), m, p.n, p.k, stream);
      });
    };
    cases.push_back(t);
  }
};

}  // namespace

void bench_small_m(Report& report) {
  const std::unique_ptr<CublasLt> library = CublasLt::open();
  if (library == nullptr) std::printf("cuBLASLt is not here: no comparison\n");
  for (const SmallMWeight format :
       {SmallMWeight::kBF16, SmallMWeight::kFp8, SmallMWeight::kInt8, SmallMWeight::kInt4G128}) {
    Bench bench = {report,
                   format,
                   Buffer(size_t{3} << 30),
                   Buffer(256 * 14336 * 2),
                   Buffer(size_t{256} * 128256 * 4),
                   Buffer(128256 * 4),
                   library.get()};
    fill(bench.pool,
         format == SmallMWeight::kBF16   ? Fill::kNormalBF16
         : format == SmallMWeight::kFp8  ? Fill::kNormalFp8
         : format == SmallMWeight::kInt8 ? Fill::kAnyBytes
                                         : Fill::kInt4Blocks,
         0.03f, 11);
    fill(bench.x, Fill::kNormalBF16, 1.0f, 12);
    fill(bench.scale, Fill::kFloats, 1.0f, 13);
    std::vector<Timed> cases;
    for (const Product& p : kProducts) {
      for (const int m : {1, 4, 8, 16, 32, 64, 128, 256}) {
        if (m > 64 && p.n > 100000) continue;  // a head's rows are those that sample
        bench.add_alone(cases, p, m);
      }
    }
    for (const int m : {1, 4, 8, 16, 32, 64, 128, 256}) bench.add_layer(cases, m);
    time_interleaved(cases, 7, report);
  }
}

}  // namespace pelton::bench_cuda
