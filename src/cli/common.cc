#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/utf8.h"
#include "ops/device_weights.h"

namespace pelton::cli {
namespace {

constexpr uint64_t kMaxTextFile = 1ull << 30;

// What --quantization, or a shape's --weights, makes of the weights.
Status parse_quantization(const CommonOptions& options, engine::EngineOptions* engine) {
  using kernels::WeightLayout;
  const bool of_shape = options.weights != "bf16";
  if (of_shape && options.shape.empty())
    return invalid_argument("--weights goes with --shape; for a model there is --quantization");
  if (of_shape && options.quantization != "none")
    return invalid_argument("--weights and --quantization say the same: give one of them");
  const std::string& name = of_shape ? options.weights : options.quantization;
  const std::string option = of_shape ? "--weights " + name : "--quantization " + name;
  if (name == "none" && !of_shape) return {};
  engine->quantization = name == "fp8"    ? WeightLayout::kFp8Channels
                         : name == "int8" ? WeightLayout::kInt8Channels
                         : name == "int4" ? WeightLayout::kInt4Groups
                                          : WeightLayout::kSource;
  if (engine->quantization == WeightLayout::kSource) {
    return invalid_argument(option + ": not one of " + (of_shape ? "bf16" : "none") +
                            ", fp8, int8, int4");
  }
  if (!engine->cuda)
    return invalid_argument(option + " needs --device cuda: on a CPU weights stay as they are");
  if (engine->activations == kernels::ActivationPrecision::kF32)
    return invalid_argument(option + " contradicts --activations f32, which keeps weights");
  return {};
}

Result<kernels::KvFormat> parse_kv_format(const std::string& name,
                                          const engine::EngineOptions& engine) {
  using kernels::KvFormat;
  if (name == "auto") {
    if (engine.activations == kernels::ActivationPrecision::kF32) return KvFormat::kF32;
    return engine.cuda ? KvFormat::kBF16 : KvFormat::kF16;
  }
  for (const KvFormat format :
       {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16, KvFormat::kFp8, KvFormat::kInt8}) {
    if (name == kernels::kv_format_name(format)) return format;
  }
  if (name == "bfloat16") return KvFormat::kBF16;
  if (name == "float16") return KvFormat::kF16;
  if (name == "fp8_e4m3") return KvFormat::kFp8;
  return invalid_argument("--kv-cache-dtype: '" + name +
                          "' is not one of auto, f32, f16, bf16, fp8, int8");
}

Status parse_device(const std::string& name, bool only_plans, engine::EngineOptions* engine) {
  if (name == "cpu") return {};
  std::string_view index = name;
  if (!index.starts_with("cuda"))
    return invalid_argument("--device: '" + name + "' is not cpu or cuda[:N]");
  index.remove_prefix(4);
  if (!index.empty()) {
    if (index[0] == ':') index.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(index.data(), index.data() + index.size(), engine->cuda_index);
    if (name[4] != ':' || error != std::errc() || end != index.data() + index.size() ||
        engine->cuda_index < 0) {
      return invalid_argument("--device: '" + name + "' is not cpu or cuda[:N]");
    }
  }
  if (!only_plans && !runtime::built_with_cuda())
    return unsupported("--device " + name + ": this build has no CUDA backend");
  engine->cuda = true;
  return {};
}

runtime::LibraryOptions parse_library_path(const std::string& path) {
  runtime::LibraryOptions libraries;
  libraries.use = path != "none";
  for (size_t begin = 0; libraries.use && begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) libraries.folders.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return libraries;
}

}  // namespace

Result<size_t> parse_size(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  if (unit == "kb") factor = 1e3;
  if (unit == "mb") factor = 1e6;
  if (unit == "gb") factor = 1e9;
  if (unit == "k" || unit == "kib") factor = 0x1p10;
  if (unit == "m" || unit == "mib") factor = 0x1p20;
  if (unit == "g" || unit == "gib") factor = 0x1p30;
  if (end == text.c_str() || factor == 0 || !std::isfinite(number) || number <= 0 ||
      number * factor > 0x1p52) {
    return invalid_argument("'" + text +
                            "' is not a size: write a number with B, KB, MB, GB, KiB, MiB or GiB");
  }
  return static_cast<size_t>(number * factor);
}

std::string format_bytes(size_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (value >= 0x1p20) return fmt::format("{:.1f} MiB", value / 0x1p20);
  if (value >= 0x1p10) return fmt::format("{:.1f} KiB", value / 0x1p10);
  return fmt::format("{} B", bytes);
}

Result<engine::EngineOptions> engine_options(const CommonOptions& options, bool only_plans) {
  engine::EngineOptions engine;
  if (Status s = parse_device(options.device, only_plans, &engine); !s.ok()) return s;
  engine.cuda_libraries = parse_library_path(options.cuda_lib_path);
  engine.threads = options.threads;
  if (!options.isa.empty()) {
    for (const IsaLevel level :
         {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
      if (options.isa == isa_level_name(level)) engine.isa = level;
    }
    if (!engine.isa)
      return invalid_argument("--isa: '" + options.isa +
                              "' is not one of generic, avx2, avx512, amx");
  }
  if (options.activations == "f32") {
    engine.activations = kernels::ActivationPrecision::kF32;
  } else if (options.activations != "int8") {
    return invalid_argument("--activations: '" + options.activations + "' is not int8 or f32");
  }
  if (Status s = parse_quantization(options, &engine); !s.ok()) return s;
  if (!options.packed_cache.empty()) {
    if (!engine.cuda) return invalid_argument("--packed-cache needs --device cuda");
    if (!options.shape.empty())
      return invalid_argument("--packed-cache: a shape's weights are made, not converted");
    engine.packed_cache = options.packed_cache;
  }
  auto format = parse_kv_format(options.kv_cache_dtype, engine);
  if (!format.ok()) return format.status();
  engine.kv_cache_dtype = *format;
  engine.invariant = options.invariant;
  if (!options.memory.empty()) {
    auto size = parse_size(options.memory);
    if (!size.ok()) return size.status().with_context("--memory");
    engine.memory_limit = *size;
  }
  engine.max_model_len = options.max_model_len;
  if (options.max_num_seqs > 0) engine.max_num_seqs = options.max_num_seqs;
  if (options.max_num_batched_tokens > 0)
    engine.max_num_batched_tokens = options.max_num_batched_tokens;
  engine.block_size = options.block_size;
  engine.num_kv_blocks = options.num_kv_blocks;
  engine.enable_prefix_caching = !options.no_prefix_caching;
  return engine;
}

Result<std::unique_ptr<engine::ModelFiles>> open_files(const CommonOptions& options) {
  if (options.shape.empty() == options.model.empty()) {
    return invalid_argument(options.model.empty() ? "MODEL is required"
                                                  : "--shape stands instead of MODEL");
  }
  if (options.shape.empty()) {
    if (options.layers != 0) return invalid_argument("--layers goes with --shape");
    return engine::ModelFiles::open(options.model, options.model_path);
  }
  auto files = engine::ModelFiles::from_shape(options.shape, options.layers);
  if (!files.ok()) return files.status().with_context("--shape");
  return files;
}

Result<std::unique_ptr<engine::Engine>> load_engine(const CommonOptions& options,
                                                    const engine::EngineOptions& engine) {
  auto files = open_files(options);
  if (!files.ok()) return files.status();
  const bool terminal = isatty(STDERR_FILENO) != 0 && !options.json;
  if (terminal)
    std::fprintf(stderr, "loading %s ...",
                 (options.shape.empty() ? options.model : options.shape).c_str());
  auto loaded = engine::Engine::load(std::move(files).value(), engine);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!loaded.ok()) return loaded.status();
  for (const std::string& warning : (*loaded)->warnings()) print_error("warning: " + warning);
  return loaded;
}

Result<std::string> read_text(const std::string& path) {
  if (path != "-") return read_file(path, kMaxTextFile);
  std::string text;
  char buffer[65536];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, got);
    if (text.size() > kMaxTextFile) return invalid_argument("standard input: more than 1 GiB");
  }
  if (std::ferror(stdin) != 0) return io_error("standard input: cannot read");
  return text;
}

Json machine_json(IsaLevel isa, int threads) {
  return {{"cpu", cpu_features().model_name},
          {"isa", isa_level_name(isa)},
          {"threads", threads == 0 ? available_threads() : threads},
          {"gpu", nullptr}};
}

Json answer_header(const std::string& command, const engine::ModelFiles& files,
                   const engine::EngineOptions& options) {
  const models::ModelConfig& config = files.config();
  Json answer;
  answer["schema"] = "pelton." + command + ".1";
  answer["model"] = {{"path", files.path()},
                     {"name", files.display_name()},
                     {"architecture", config.model_type},
                     {"layers", config.num_hidden_layers},
                     {"hidden_size", config.hidden_size},
                     {"vocab_size", config.vocab_size}};
  answer["machine"] =
      machine_json(options.isa.value_or(cpu_features().best_level()), options.threads);
  if (options.backend != nullptr) answer["machine"]["gpu"] = options.backend->device().caps().name;
  if (options.quantization != kernels::WeightLayout::kSource)
    answer["model"]["quantization"] = kernels::weight_layout_name(options.quantization);
  answer["rows"] = Json::array();
  return answer;
}

Json answer_row(const std::string& name, double value, const std::string& unit) {
  return {{"name", name},     {"value", value},     {"unit", unit},
          {"limit", nullptr}, {"percent", nullptr}, {"spread", nullptr}};
}

std::string printable(std::string_view text) {
  std::string out;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t begin = pos;
    uint32_t code = 0;
    const bool valid = decode_utf8(text, &pos, &code);
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    out += valid && !control ? text.substr(begin, pos - begin) : "\xEF\xBF\xBD";
  }
  return out;
}

void print_error(const std::string& line) {
  std::fprintf(stderr, "pelton: %s\n", printable(line).c_str());
}

Status print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return io_error("standard output: cannot write");
  }
  return {};
}

}  // namespace pelton::cli
