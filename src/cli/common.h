// What every command shares: the options, how they become an engine, how an answer is shown.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/json_tree.h"
#include "base/result.h"
#include "engine/engine.h"

namespace pelton::cli {

// Options of every command that opens a model; spelled as on the command line.
struct CommonOptions {
  std::string model;
  std::string shape;                  // instead of a model: random weights of a known shape
  int32_t layers = 0;                 // of the shape; 0 = its own
  std::string weights = "bf16";       // of the shape: bf16; on a device fp8, int8, int4
  std::string model_path = "models";  // PELTON_MODELS: where bare model names are looked up
  int threads = 0;
  std::string device = "cpu";
  std::string cuda_lib_path;         // folders, colon-separated; "none": no library
  std::string isa;                   // generic, avx2, avx512, amx; empty = best
  std::string activations = "int8";  // int8, f32
  std::string memory;                // "2GiB"; empty = no bound
  std::string kv_cache_dtype = "auto";
  std::string quantization = "none";  // of weights at load, on a device: fp8, int8, int4
  std::string packed_cache;           // file or folder that keeps a device's weights
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 0;            // 0 = the command's own default
  int32_t max_num_batched_tokens = 0;  // 0 = the command's own default
  int32_t block_size = 32;
  int32_t num_kv_blocks = 0;  // 0 = worked out
  bool no_prefix_caching = false;
  bool invariant = false;  // always true on CPU; accepted so that scripts need not care
  bool json = false;
};

// "64", "1.5GiB", "800MB", "2g" -> bytes.
Result<size_t> parse_size(const std::string& text);
std::string format_bytes(size_t bytes);  // "1.23 GiB"

// Engine options; kInvalidArgument names the option. `only_plans`: a device need not be there.
Result<engine::EngineOptions> engine_options(const CommonOptions& options, bool only_plans = false);
// The model, or the shape where one was asked for.
Result<std::unique_ptr<engine::ModelFiles>> open_files(const CommonOptions& options);
// Opens and loads; progress to stderr when it is a terminal, warnings to stderr.
Result<std::unique_ptr<engine::Engine>> load_engine(const CommonOptions& options,
                                                    const engine::EngineOptions& engine);

// The whole of a file, or of standard input for "-".
Result<std::string> read_text(const std::string& path);

// {"cpu", "isa", "threads", "gpu"}; 0 threads: as many as this process may use.
Json machine_json(IsaLevel isa, int threads);
// {"schema": "pelton.<command>.1", "model": {...}, "machine": {...}, "rows": []}.
Json answer_header(const std::string& command, const engine::ModelFiles& files,
                   const engine::EngineOptions& options);
Json answer_row(const std::string& name, double value, const std::string& unit);

// Names and values may come from a file: control characters (line ends too) and what is no UTF-8
// become U+FFFD, so that the text is safe on a terminal.
std::string printable(std::string_view text);
// "pelton: LINE" on standard error, always one line.
void print_error(const std::string& line);

// Writes to standard output; the error when it is closed or full.
Status print(const std::string& text);

}  // namespace pelton::cli
