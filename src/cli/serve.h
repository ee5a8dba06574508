// pelton serve: the OpenAI API over HTTP.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace pelton::cli {

struct ServeOptions {
  CommonOptions common;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> served_model_name;
  std::string api_key_file;
  std::string ssl_certfile;  // empty: plain HTTP
  std::string ssl_keyfile;   // empty: the key is in ssl_certfile
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  std::string batching = "continuous";  // or static
  int max_queue = 256;
  double queue_timeout = 60;  // seconds
  double drain_timeout = 30;  // seconds
  int max_connections = 4096;
  double header_timeout = 10;  // seconds, as the next three
  double body_timeout = 60;
  double idle_timeout = 60;
  double step_watchdog = 30;
  int http_workers = 2;
  bool disable_page = false;
  bool self_test = false;
  std::string request_log;               // a file, "-" = standard error; empty = none
  std::string metrics_names = "pelton";  // or vllm: both
  // Accepted as vLLM spells them, where they mean what is so here anyway.
  int tensor_parallel_size = 1;
  std::string dtype = "auto";
  bool enforce_eager = false;
  double gpu_memory_utilization = 0.9;
  bool disable_log_requests = false;
  std::vector<std::string> left_alone;  // options that need nothing here, as they were given
  std::vector<std::string> api_keys;    // as lines of the file
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::string pooling = "last";
};

Status run_serve(ServeOptions options, const char* version);

}  // namespace pelton::cli
