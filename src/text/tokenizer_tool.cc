// Encodes and decodes for comparison with reference libraries, and measures speed.
//
//   pelton_tokenizer_tool MODEL encode [special] [bos]   length-prefixed texts on stdin, ids out
//   pelton_tokenizer_tool MODEL decode [skip]            lines of ids on stdin, length-prefixed out
//   pelton_tokenizer_tool MODEL time FILE                seconds of encoding the whole file
//   pelton_tokenizer_tool MODEL load                     seconds of loading
//
// MODEL is a GGUF file, a tokenizer.json or a folder. A length-prefixed text is its byte count in
// decimal, a newline, its bytes, a newline.
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "text/tokenizer.h"
#include "weights/gguf.h"

namespace {

using pelton::Result;
using pelton::text::EncodeOptions;
using pelton::text::GgufVocabulary;
using pelton::text::Tokenizer;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

Result<TokenizerPtr> load_gguf(const std::string& path) {
  auto file = pelton::weights::GgufFile::open(path);
  if (!file.ok()) return file.status();
  const auto& f = **file;
  GgufVocabulary v;
  const auto text = [&](const char* key) {
    auto value = f.get_string(key);
    return value.ok() && *value ? **value : std::string();
  };
  const auto id = [&](const char* key) -> std::optional<int64_t> {
    auto value = f.get_int(key);
    return value.ok() ? *value : std::nullopt;
  };
  const auto flag = [&](const char* key) -> std::optional<bool> {
    auto value = f.get_bool(key);
    return value.ok() ? *value : std::nullopt;
  };
  v.model = text("tokenizer.ggml.model");
  v.pre = text("tokenizer.ggml.pre");
  if (const auto* a = f.get_strings("tokenizer.ggml.tokens")) v.tokens = *a;
  if (const auto* a = f.get_strings("tokenizer.ggml.merges")) v.merges = *a;
  if (const auto* a = f.get_floats("tokenizer.ggml.scores")) v.scores = *a;
  if (const auto* a = f.get_ints("tokenizer.ggml.token_type")) v.token_types = *a;
  v.bos_id = id("tokenizer.ggml.bos_token_id");
  v.eos_id = id("tokenizer.ggml.eos_token_id");
  v.eot_id = id("tokenizer.ggml.eot_token_id");
  v.unknown_id = id("tokenizer.ggml.unknown_token_id");
  v.add_bos = flag("tokenizer.ggml.add_bos_token");
  v.add_eos = flag("tokenizer.ggml.add_eos_token");
  v.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
  return Tokenizer::from_gguf(std::move(v));
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Result<TokenizerPtr> load(const std::string& path) {
  if (path.ends_with(".gguf")) return load_gguf(path);
  if (path.ends_with(".json")) return Tokenizer::from_json(read_all(path), "");
  return Tokenizer::from_folder(path);
}

int encode(const Tokenizer& tokenizer, const EncodeOptions& options) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string text(std::stoul(line), '\0');
    std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
    std::cin.ignore(1);
    std::string out;
    for (const int32_t id : tokenizer.encode(text, options)) out += std::to_string(id) + ' ';
    std::cout << out << '\n';
  }
  return 0;
}

int decode(const TokenizerPtr& tokenizer, bool skip) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::vector<int32_t> ids;
    for (int32_t id; in >> id;) ids.push_back(id);
    const std::string text = tokenizer->decode(ids, skip);
    pelton::text::StreamingDetokenizer stream(tokenizer, skip);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != text) {
      std::cerr << "stream differs\n";
      return 1;
    }
    std::cout << text.size() << '\n' << text << '\n';
  }
  return 0;
}

double seconds(const std::chrono::steady_clock::time_point& since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[2];
  const auto begin = std::chrono::steady_clock::now();
  auto tokenizer = load(argv[1]);
  const double load_seconds = seconds(begin);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().to_string() << '\n';
    return 1;
  }
  const auto has = [&](std::string_view word) {
    for (int i = 3; i < argc; ++i) {
      if (word == argv[i]) return true;
    }
    return false;
  };
  if (mode == "encode") {
    EncodeOptions options;
    options.add_special_tokens = has("bos");
    options.parse_special = has("special");
    return encode(**tokenizer, options);
  }
  if (mode == "decode") return decode(*tokenizer, has("skip"));
  if (mode == "load") {
    std::cout << load_seconds << '\n';
    return 0;
  }
  const std::string text = read_all(argv[3]);
  std::string line = "go";
  // One measurement for each line on stdin, so that a script can interleave two programs.
  while (std::getline(std::cin, line)) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = (*tokenizer)->encode(text, {false, false, {}});
    std::cout << seconds(start) << ' ' << ids.size() << std::endl;
  }
  return 0;
}
