// pelton inspect: what is in a model file, from its headers, whether or not Pelton can run it.
#pragma once

#include <string>

#include "pelton/status.h"

namespace pelton::cli {

struct InspectOptions {
  std::string model;       // GGUF file, .safetensors file or Hugging Face folder
  std::string model_path;  // colon-separated folders where a bare name is looked up
  bool json = false;
};

// Appends the answer to `out`, whole, or returns an error with nothing appended.
Status run_inspect(const InspectOptions& options, std::string* out);

}  // namespace pelton::cli
