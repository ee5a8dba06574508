// pelton bench-serve: load on an OpenAI server, and how it bore it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench_serve/workload.h"

namespace pelton::cli {

struct BenchServeOptions {
  std::string url;
  std::string endpoint = "completions";  // or chat
  std::string model;                     // empty = the first that the server lists
  std::string api_key_file;
  std::string ca_file;    // of https; empty = what the system trusts
  bool insecure = false;  // any certificate
  bench_serve::WorkloadOptions workload;
  std::string token_ids;    // "LOW-HIGH": prompts as ids of that range
  double request_rate = 0;  // a second; 0 = all at once
  double burstiness = 1;    // 1 = Poisson
  int max_concurrency = 0;  // 0 = no bound
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;  // JSON object
  std::vector<std::string> goodput;
  double timeout = 600;  // seconds
  int warmups = 0;       // requests before the measured ones
  std::string csv;
  bool json = false;
};

Status run_bench_serve(const BenchServeOptions& options);

}  // namespace pelton::cli
