// What every check and benchmark of the CUDA kernels shares: device memory, random data, timing of
// captured graphs, and the report as a table and as JSON. Needs the CUDA toolkit alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pelton::bench_cuda {

// Ends the program with a line naming the place: the runner has nothing to clean up.
void require(cudaError_t status, const char* what);

// Zeroed device memory for the life of the object.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  template <typename T = void>
  T* as(size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + byte_offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

enum class Fill { kNormalBF16, kNormalFp8, kInt4Blocks, kFloats, kAnyBytes };
// Random contents from `seed`: normal values of deviation `scale`; kInt4Blocks: packed blocks with
// positive scales near `scale`; kFloats: positive, near `scale`.
void fill(const Buffer& buffer, Fill kind, float scale, uint64_t seed);
template <typename T>
Buffer upload(const std::vector<T>& values);
template <typename T>
std::vector<T> download(const Buffer& buffer, size_t count);

// One row of the report.
struct Row {
  std::string group;    // "small_m", "paged_decode", ...
  std::string name;     // the case
  std::string variant;  // "pelton", "cublaslt", ...
  double microseconds = 0;
  double spread = 0;  // (largest - smallest) / median of the repetitions
  double bytes = 0;   // that must move
  double flops = 0;
};

struct Report {
  std::vector<Row> rows;
  double copy_bandwidth = 0;  // bytes a second, read plus written
  double read_bandwidth = 0;
  int failed_checks = 0;
  int passed_checks = 0;
};
void print_table(const Report& report);
// `label` says what was measured: a commit, say.
bool write_json(const Report& report, const std::string& path, const std::string& label);

// A graph of launches, timed as a whole.
struct Timed {
  Row row;                                   // microseconds are filled in, per launch
  std::function<void(cudaStream_t)> record;  // issues `launches` launches
  int launches = 1;
};
// Captures each, replays them in turns, there and back, and appends the medians to the report.
void time_interleaved(std::vector<Timed>& cases, int repetitions, Report& report);

// Counts a check and prints it when it fails.
void check(Report& report, bool passed, const std::string& what);

void measure_roofline(Report& report);
void check_small_m(Report& report, bool quick);
void check_wide_m(Report& report, bool quick);
void bench_small_m(Report& report);
void check_paged_decode(Report& report, bool quick);
void bench_paged_decode(Report& report);
void check_sampling(Report& report, bool quick);
void bench_sampling(Report& report);
void check_gemm(Report& report, bool quick);
void bench_gemm(Report& report, bool quick);
void check_quantize_rows(Report& report, bool quick);
void bench_quantize_rows(Report& report);
void check_dequantize_int4(Report& report, bool quick);
void bench_dequantize_int4(Report& report);
void check_paged_prefill(Report& report, bool quick);
void bench_paged_prefill(Report& report);
void bench_unfused(Report& report);

}  // namespace pelton::bench_cuda
