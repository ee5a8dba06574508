#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "harness.h"
#include "kernels/cuda/matmul/int4_pack.h"

namespace pelton::bench_cuda {

void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  require(cudaMalloc(&data_, std::max<size_t>(bytes, 256)), "device memory");
  require(cudaMemset(data_, 0, std::max<size_t>(bytes, 256)), "clearing device memory");
}
Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Buffer::~Buffer() { cudaFree(data_); }

namespace {

__device__ uint32_t hash(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<uint32_t>(x);
}
// The sum of four uniform numbers: close enough to normal, of deviation 1.
__device__ float normal(uint64_t at, uint64_t seed) {
  const uint32_t a = hash(2 * at + seed * 0x9e3779b97f4a7c15ull);
  const uint32_t b = hash(2 * at + 1 + seed * 0x9e3779b97f4a7c15ull);
  const float sum = static_cast<float>((a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16));
  return (sum / 65536.0f - 2.0f) * 1.7320508f;
}

__global__ void fill_kernel(void* data, size_t bytes, Fill kind, float scale, uint64_t seed) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;; i += step) {
    switch (kind) {
      case Fill::kNormalBF16:
        if (2 * i + 1 >= bytes) return;
        static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(scale * normal(i, seed));
        break;
      case Fill::kNormalFp8:
        if (i >= bytes) return;
        static_cast<__nv_fp8_e4m3*>(data)[i] = __nv_fp8_e4m3(scale * normal(i, seed));
        break;
      case Fill::kInt4Blocks: {
        if (2 * i + 1 >= bytes) return;
        const bool is_scale = 2 * i % kernels::cuda::kInt4BlockBytes >= 1024;
        static_cast<uint16_t*>(data)[i] =
            is_scale ? __half_as_ushort(__float2half_rn(scale * (1.0f + 0.2f * normal(i, seed))))
                     : static_cast<uint16_t>(hash(i + seed));
        break;
      }
      case Fill::kFloats:
        if (4 * i + 3 >= bytes) return;
        static_cast<float*>(data)[i] = scale * (1.0f + 0.2f * normal(i, seed));
        break;
      case Fill::kAnyBytes:
        if (i >= bytes) return;
        static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(hash(i + seed));
        break;
    }
  }
}

// One tile a block, no loop: the block scheduler keeps reads and writes mixed.
__global__ void __launch_bounds__(512) copy_kernel(const uint4* from, uint4* to) {
  constexpr int kUnroll = 4;
  const size_t base = static_cast<size_t>(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  uint4 v[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) v[i] = from[base + i * blockDim.x];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) to[base + i * blockDim.x] = v[i];
}

// Each block reads whole tiles, many 16-byte loads in flight a thread; the sum keeps them alive.
__global__ void __launch_bounds__(512)
    read_kernel(const uint4* from, size_t count, uint32_t* sink) {
  constexpr int kUnroll = 8;
  uint32_t sum = 0;
  const size_t tile = static_cast<size_t>(blockDim.x) * kUnroll;
  for (size_t base = blockIdx.x * tile; base + tile <= count; base += gridDim.x * tile) {
    uint4 v[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) v[i] = __ldcs(from + base + i * blockDim.x + threadIdx.x);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

void fill(const Buffer& buffer, Fill kind, float scale, uint64_t seed) {
  fill_kernel<<<132 * 8, 256>>>(buffer.as<void>(), buffer.bytes(), kind, scale, seed);
  require(cudaGetLastError(), "filling");
  require(cudaDeviceSynchronize(), "filling");
}

template <typename T>
Buffer upload(const std::vector<T>& values) {
  Buffer buffer(values.size() * sizeof(T));
  require(cudaMemcpy(buffer.as<void>(), values.data(), values.size() * sizeof(T),
                     cudaMemcpyHostToDevice),
          "upload");
  return buffer;
}
template <typename T>
std::vector<T> download(const Buffer& buffer, size_t count) {
  std::vector<T> values(count);
  require(cudaMemcpy(values.data(), buffer.as<void>(), count * sizeof(T), cudaMemcpyDeviceToHost),
          "download");
  return values;
}
template Buffer upload(const std::vector<int32_t>&);
template Buffer upload(const std::vector<float>&);
template Buffer upload(const std::vector<uint8_t>&);
template Buffer upload(const std::vector<uint16_t>&);
template std::vector<uint8_t> download(const Buffer&, size_t);
template std::vector<uint16_t> download(const Buffer&, size_t);
template std::vector<int32_t> download(const Buffer&, size_t);
template std::vector<float> download(const Buffer&, size_t);
template std::vector<double> download(const Buffer&, size_t);

void time_interleaved(std::vector<Timed>& cases, int repetitions, Report& report) {
  cudaStream_t stream;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaEvent_t begin;
  cudaEvent_t end;
  require(cudaEventCreate(&begin), "event");
  require(cudaEventCreate(&end), "event");
  std::vector<cudaGraphExec_t> graphs(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    cudaGraph_t graph;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    cases[i].record(stream);
    require(cudaStreamEndCapture(stream, &graph), "end of capture");
    require(cudaGraphInstantiate(&graphs[i], graph, 0), "instantiating");
    require(cudaGraphDestroy(graph), "graph");
  }
  std::vector<std::vector<double>> times(cases.size());
  for (int r = -1; r < repetitions; ++r) {  // the first round warms up
    for (size_t turn = 0; turn < cases.size(); ++turn) {
      // Every second round goes backwards: at its limit of power the chip is slower after a case
      // that uses much of it.
      const size_t i = r % 2 == 0 ? turn : cases.size() - 1 - turn;
      require(cudaEventRecord(begin, stream), "event");
      require(cudaGraphLaunch(graphs[i], stream), "replay");
      require(cudaEventRecord(end, stream), "event");
      require(cudaEventSynchronize(end), cases[i].row.name.c_str());
      float milliseconds = 0;
      require(cudaEventElapsedTime(&milliseconds, begin, end), "event");
      if (r >= 0) times[i].push_back(1e3 * milliseconds / cases[i].launches);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [least, most] = std::minmax_element(times[i].begin(), times[i].end());
    cases[i].row.microseconds = median(times[i]);
    cases[i].row.spread = (*most - *least) / cases[i].row.microseconds;
    report.rows.push_back(cases[i].row);
    require(cudaGraphExecDestroy(graphs[i]), "graph");
  }
  require(cudaEventDestroy(begin), "event");
  require(cudaEventDestroy(end), "event");
  require(cudaStreamDestroy(stream), "stream");
}

void check(Report& report, bool passed, const std::string& what) {
  ++(passed ? report.passed_checks : report.failed_checks);
  if (!passed) std::printf("FAILED %s\n", what.c_str());
}

void measure_roofline(Report& report) {
  constexpr size_t kBytes = size_t{4} << 30;
  Buffer from(kBytes);
  Buffer to(kBytes);
  Buffer sink(256);
  fill(from, Fill::kAnyBytes, 1, 7);
  const size_t count = kBytes / 16;
  std::vector<Timed> cases(4);
  cases[0].row = {"roofline", "copy", "engine", 0, 0, 2.0 * kBytes, 0};
  cases[0].record = [&](cudaStream_t s) {
    require(cudaMemcpyAsync(to.as<void>(), from.as<void>(), kBytes, cudaMemcpyDeviceToDevice, s),
            "copy");
  };
  cases[1].row = {"roofline", "copy", "kernel", 0, 0, 2.0 * kBytes, 0};
  cases[1].record = [&](cudaStream_t s) {
    copy_kernel<<<static_cast<unsigned>(count / 2048), 512, 0, s>>>(from.as<uint4>(),
                                                                    to.as<uint4>());
  };
  cases[2].row = {"roofline", "read", "2 blocks/SM", 0, 0, 1.0 * kBytes, 0};
  cases[2].record = [&](cudaStream_t s) {
    read_kernel<<<132 * 2, 512, 0, s>>>(from.as<uint4>(), count, sink.as<uint32_t>());
  };
  cases[3].row = {"roofline", "read", "8 blocks/SM", 0, 0, 1.0 * kBytes, 0};
  cases[3].record = [&](cudaStream_t s) {
    read_kernel<<<132 * 8, 512, 0, s>>>(from.as<uint4>(), count, sink.as<uint32_t>());
  };
  time_interleaved(cases, 5, report);
  for (const Timed& c : cases) {
    double& best = c.row.name == "copy" ? report.copy_bandwidth : report.read_bandwidth;
    best = std::max(best, c.row.bytes / c.row.microseconds * 1e6);
  }
}

void print_table(const Report& report) {
  std::printf("copy %.0f GB/s, read %.0f GB/s; checks: %d passed, %d failed\n",
              report.copy_bandwidth / 1e9, report.read_bandwidth / 1e9, report.passed_checks,
              report.failed_checks);
  for (const Row& r : report.rows) {
    const double rate = r.bytes / r.microseconds * 1e6;
    std::printf("%-12s %-34s %-14s %9.2f us %5.1f%% %7.0f GB/s %5.1f%% copy %6.0f TFLOP/s\n",
                r.group.c_str(), r.name.c_str(), r.variant.c_str(), r.microseconds, 100 * r.spread,
                rate / 1e9, 100 * rate / report.copy_bandwidth, r.flops / r.microseconds / 1e6);
  }
}

bool write_json(const Report& report, const std::string& path, const std::string& label) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  cudaDeviceProp device = {};
  int driver = 0;
  int runtime = 0;
  int core_clock = 0;
  int memory_clock = 0;
  require(cudaDeviceGetAttribute(&core_clock, cudaDevAttrClockRate, 0), "clock");
  require(cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, 0), "clock");
  require(cudaGetDeviceProperties(&device, 0), "device");
  require(cudaDriverGetVersion(&driver), "driver");
  require(cudaRuntimeGetVersion(&runtime), "runtime");
  std::fprintf(file,
               "{\n\"label\": \"%s\", \"highest_core_mhz\": %d, \"highest_memory_mhz\": %d, "
               "\"device\": \"%s\", \"multiprocessors\": %d, \"driver\": %d, \"runtime\": %d,\n"
               "\"copy_gbs\": %.1f, \"read_gbs\": %.1f, \"checks_passed\": %d, \"checks_failed\": "
               "%d,\n\"rows\": [\n",
               label.c_str(), core_clock / 1000, memory_clock / 1000, device.name,
               device.multiProcessorCount, driver, runtime, report.copy_bandwidth / 1e9,
               report.read_bandwidth / 1e9, report.passed_checks, report.failed_checks);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const Row& r = report.rows[i];
    const double rate = r.bytes / r.microseconds * 1e6;
    std::fprintf(
        file,
        "{\"group\": \"%s\", \"name\": \"%s\", \"variant\": \"%s\", \"us\": %.3f, \"spread\": "
        "%.3f, \"bytes\": %.0f, \"gbs\": %.1f, \"of_copy\": %.4f, \"tflops\": %.1f}%s\n",
        r.group.c_str(), r.name.c_str(), r.variant.c_str(), r.microseconds, r.spread, r.bytes,
        rate / 1e9, rate / report.copy_bandwidth, r.flops / r.microseconds / 1e6,
        i + 1 < report.rows.size() ? "," : "");
  }
  std::fprintf(file, "]\n}\n");
  return std::fclose(file) == 0;
}

}  // namespace pelton::bench_cuda
