// Times of decode attention at the shape of an 8B model (32 query heads, 8 KV heads, head dim 128):
// pages of many layers in turn, more than 400 MB, so none is found in the cache.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "paged_decode_cases.h"

namespace pelton::bench_cuda {

void bench_paged_decode(Report& report) {
  using kernels::cuda::PageType;
  struct Point {
    int batch;
    int context;
  };
  const Point points[] = {{1, 1024},  {1, 4096},   {1, 16384},  {1, 32768},  {8, 1024},
                          {8, 8192},  {32, 1024},  {64, 1024},  {64, 2048},  {64, 4096},
                          {64, 8192}, {128, 1024}, {256, 1024}, {256, 4096}, {32, 1500}};
  for (const PageType type : {PageType::kBF16, PageType::kFp8}) {
    for (const Point& point : points) {
      DecodeCase c;
      c.type = type;
      c.lengths.assign(static_cast<size_t>(point.batch), point.context);
      const double bytes = 2.0 * point.batch * point.context * c.kv_heads * c.head_dim *
                           (type == PageType::kFp8 ? 1 : 2);
      const int layers = static_cast<int>(std::clamp(4e8 / bytes, 1.0, 64.0)) + 1;
      const int launches = std::max(layers, 4);
      size_t layer_bytes = 0;
      const DecodeBatch d = make_decode_batch(c, layers, 17, &layer_bytes);
      std::vector<Timed> cases;
      for (const bool programmatic : {true, false}) {
        Timed t;
        t.row = {"paged_decode",
                 std::string(type == PageType::kFp8 ? "fp8" : "bf16") + " b" +
                     std::to_string(point.batch) + " c" + std::to_string(point.context),
                 programmatic ? "pelton" : "pelton, serial",
                 0,
                 0,
                 bytes,
                 4.0 * point.batch * point.context * c.heads * c.head_dim};
        t.launches = launches;
        t.record = [&, programmatic](cudaStream_t stream) {
          for (int i = 0; i < launches; ++i) {
            kernels::cuda::PagedDecodeArgs a = d.args;
            const size_t offset = static_cast<size_t>(i % layers) * layer_bytes;
            a.keys = static_cast<const char*>(a.keys) + offset;
            a.values = static_cast<const char*>(a.values) + offset;
            a.programmatic = programmatic;
            require(kernels::cuda::launch_paged_decode(a, stream), "launch");
          }
        };
        cases.push_back(t);
      }
      time_interleaved(cases, 7, report);
    }
  }
}

}  // namespace pelton::bench_cuda
