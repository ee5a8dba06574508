// Times of choosing tokens on an 8B model's vocabulary. Logits rotate over more memory than the
// cache holds.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness.h"
#include "kernels/cuda/sampling/sample.h"

namespace pelton::bench_cuda {

namespace {

using kernels::SampleParams;
using kernels::SampleRow;

struct Kind {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
};
constexpr Kind kKinds[] = {{"greedy", 0.0f, 0, 1.0f, 0.0f},
                           {"top-k 50 top-p 0.9", 0.8f, 50, 0.9f, 0.0f},
                           {"top-k 256 top-p 0.9", 0.8f, 256, 0.9f, 0.0f},
                           {"min-p 0.1", 0.8f, 0, 1.0f, 0.1f},
                           {"top-p 0.9", 0.8f, 0, 0.9f, 0.0f},
                           {"plain", 0.8f, 0, 1.0f, 0.0f}};

// Logits of deviation 2.5, and some tokens that stand out, as a model's do.
__global__ void shape_logits(float* logits, int64_t count, int vocab) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float noise = (logits[i] - 1.0f) * 12.5f;
  const uint32_t mixed = static_cast<uint32_t>(i % vocab) * 2654435761u;
  logits[i] = noise + (mixed % 4001 == 0 ? 11.0f : 0.0f);
}

}  // namespace

void bench_sampling(Report& report) {
  constexpr int kVocab = 128256;
  constexpr int kMost = 512;
  const int64_t count = int64_t{kMost} * kVocab;
  const Buffer logits(static_cast<size_t>(count) * 4);
  fill(logits, Fill::kFloats, 1.0f, 3);
  shape_logits<<<static_cast<unsigned>((count + 255) / 256), 256>>>(logits.as<float>(), count,
                                                                    kVocab);
  require(cudaGetLastError(), "logits");
  const Buffer tokens(kMost * 4);
  std::vector<Buffer> rows;
  std::vector<Timed> cases;
  for (const Kind& kind : kKinds) {
    std::vector<SampleRow> asked(kMost);
    for (size_t i = 0; i < asked.size(); ++i) {
      asked[i].temperature = kind.temperature;
      asked[i].top_k = kind.top_k;
      asked[i].top_p = kind.top_p;
      asked[i].min_scaled = kernels::min_p_bound(kind.min_p);
      asked[i].seed = i;
    }
    std::vector<uint8_t> bytes(asked.size() * sizeof(SampleRow));
    std::memcpy(bytes.data(), asked.data(), bytes.size());
    rows.push_back(upload(bytes));
    const SampleRow* row = rows.back().as<SampleRow>();
    for (const int batch : {1, 32, 256, 512}) {
      Timed t;
      t.row = {"sampling", std::string(kind.name) + " b" + std::to_string(batch),
               "pelton",   0,
               0,          4.0 * batch * kVocab,
               0};
      t.launches = 16;
      t.record = [=, &logits, &tokens](cudaStream_t stream) {
        for (int i = 0; i < t.launches; ++i) {
          SampleParams p;
          const int first = i * batch % kMost;
          p.logits = logits.as<float>() + int64_t{first} * kVocab;
          p.logits_stride = kVocab;
          p.rows = batch;
          p.vocab_size = kVocab;
          p.row = row;
          p.tokens = tokens.as<int32_t>();
          require(kernels::cuda::launch_sample(p, stream), "launch");
        }
      };
      cases.push_back(t);
    }
  }
  time_interleaved(cases, 7, report);
}

}  // namespace pelton::bench_cuda
