// Checks and times the CUDA kernels alone: no model, no engine, no package.
//
//   runner [--check] [--quick] [--bench] [--only GROUP] [--json FILE [--label TEXT]]
//
// --quick keeps the shapes of checks small (for a memory checker) and times fewer products. Exit
// status 1 if a check failed.
#include <cstdio>
#include <cstring>
#include <string>

#include "harness.h"

namespace pelton::bench_cuda {
namespace {

int run(int argc, char** argv) {
  bool checks = false;
  bool benches = false;
  bool quick = false;
  std::string only;
  std::string json;
  std::string label;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) checks = true;
    if (std::strcmp(argv[i], "--bench") == 0) benches = true;
    if (std::strcmp(argv[i], "--quick") == 0) quick = true;
    if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) json = argv[++i];
    if (std::strcmp(argv[i], "--label") == 0 && i + 1 < argc) label = argv[++i];
  }
  const auto chosen = [&](const char* group) { return only.empty() || only == group; };
  Report report;
  if (benches) measure_roofline(report);
  if (checks && chosen("small_m")) check_small_m(report, quick);
  if (checks && chosen("wide_m")) check_wide_m(report, quick);
  if (checks && chosen("paged_decode")) check_paged_decode(report, quick);
  if (checks && chosen("sampling")) check_sampling(report, quick);
  if (benches && chosen("small_m")) bench_small_m(report);
  if (benches && chosen("paged_decode")) bench_paged_decode(report);
  if (benches && chosen("sampling")) bench_sampling(report);
  if (checks && chosen("gemm")) check_gemm(report, quick);
  if (checks && chosen("paged_prefill")) check_paged_prefill(report, quick);
  if (checks && chosen("quantize")) check_quantize_rows(report, quick);
  if (checks && chosen("dequantize")) check_dequantize_int4(report, quick);
  if (benches && chosen("gemm")) bench_gemm(report, quick);
  if (benches && chosen("quantize")) bench_quantize_rows(report);
  if (benches && chosen("dequantize")) bench_dequantize_int4(report);
  if (benches && chosen("paged_prefill")) bench_paged_prefill(report);
  if (benches && chosen("unfused")) bench_unfused(report);
  print_table(report);
  if (!json.empty() && !write_json(report, json, label)) {
    std::fprintf(stderr, "cannot write %s\n", json.c_str());
    return 1;
  }
  return report.failed_checks == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pelton::bench_cuda

int main(int argc, char** argv) { return pelton::bench_cuda::run(argc, argv); }
