// dequantize_int4 against what was packed, bit for bit, and its time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/matmul/dequantize_int4.h"
#include "kernels/cuda/matmul/int4_pack.h"

namespace pelton::bench_cuda {

namespace {

using kernels::cuda::DequantizeInt4Args;
using kernels::cuda::int4_pack;
using kernels::cuda::int4_packed_bytes;
using kernels::cuda::kInt4Group;

void check_case(Report& report, int n, int k) {
  const std::string what = "dequantize_int4 " + std::to_string(n) + "x" + std::to_string(k);
  const size_t count = static_cast<size_t>(n) * static_cast<size_t>(k);
  std::vector<uint8_t> codes(count);
  std::vector<uint16_t> scales(count / kInt4Group);
  uint32_t state = 12345;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 16; };
  for (uint8_t& code : codes) code = static_cast<uint8_t>(next() & 15);
  for (uint16_t& scale : scales) scale = static_cast<uint16_t>(0x2000 + (next() & 0x7ff));
  std::vector<uint8_t> packed(int4_packed_bytes(n, k));
  int4_pack(codes, scales, n, k, {reinterpret_cast<std::byte*>(packed.data()), packed.size()});
  const Buffer weight = upload(packed);
  Buffer out(count * 2 + 256);
  require(cudaMemset(out.as<void>(), 0xff, out.bytes()), "poison");
  DequantizeInt4Args a;
  a.weight = weight.as<void>();
  a.out = out.as<void>();
  a.n = n;
  a.k = k;
  require(kernels::cuda::launch_dequantize_int4(a, nullptr), what.c_str());
  require(cudaDeviceSynchronize(), what.c_str());
  const std::vector<uint16_t> got = download<uint16_t>(out, out.bytes() / 2);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    __half_raw scale;
    scale.x = scales[i / kInt4Group];
    const float value = static_cast<float>(codes[i] - 8) * __half2float(__half(scale));
    const __nv_bfloat16_raw want = __float2bfloat16_rn(value);
    if (got[i] != want.x) ++wrong;
  }
  check(report, wrong == 0, what + ": " + std::to_string(wrong) + " values are wrong");
  check(report,
        std::all_of(got.begin() + static_cast<std::ptrdiff_t>(count), got.end(),
                    [](uint16_t b) { return b == 0xffff; }),
        what + ": wrote past its output");
}

}  // namespace

void check_dequantize_int4(Report& report, bool quick) {
  check_case(report, 16, 128);
  check_case(report, 5, 256);
  check_case(report, 100, 640);
  if (!quick) check_case(report, 1024, 4096);
}

void bench_dequantize_int4(Report& report) {
  for (const int n : {4096, 28672}) {
    const int k = 4096;
    Buffer weight(int4_packed_bytes(n, k));
    fill(weight, Fill::kInt4Blocks, 0.01f, 1);
    Buffer out(static_cast<size_t>(n) * k * 2);
    Timed t;
    t.row = {"dequantize",
             "int4 " + std::to_string(n) + "x" + std::to_string(k),
             "pelton",
             0,
             0,
             static_cast<double>(weight.bytes() + out.bytes()),
             0};
    t.launches = 4;
    t.record = [&](cudaStream_t stream) {
      for (int i = 0; i < 4; ++i) {
        DequantizeInt4Args a;
        a.weight = weight.as<void>();
        a.out = out.as<void>();
        a.n = n;
        a.k = k;
        require(kernels::cuda::launch_dequantize_int4(a, stream), "launch");
      }
    };
    std::vector<Timed> cases = {t};
    time_interleaved(cases, 7, report);
  }
}

}  // namespace pelton::bench_cuda
