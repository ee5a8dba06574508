// Encodes and decodes for comparison with reference libraries, and measures speed.
//
//   pelton_tokenizer_tool MODEL encode [special] [bos]   length-prefixed texts on stdin, ids out
//   pelton_tokenizer_tool MODEL decode [skip]            lines of ids on stdin, length-prefixed out
//   pelton_tokenizer_tool MODEL time FILE                processor seconds of encoding the whole
//   file pelton_tokenizer_tool MODEL load                     seconds of loading
//
// MODEL is a GGUF file, a tokenizer.json, a SentencePiece or tiktoken file, or a folder. A
// length-prefixed text is its byte count in decimal, a newline, its bytes, a newline.
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>

#include "text/model_file.h"
#include "text/testing/read_gguf_vocabulary.h"

namespace {

using pelton::Result;
using pelton::text::EncodeOptions;
using pelton::text::Tokenizer;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Result<TokenizerPtr> load(const std::string& path) {
  if (path.ends_with(".gguf")) {
    auto vocabulary = pelton::text::read_gguf_vocabulary(path);
    if (!vocabulary.ok()) return vocabulary.status();
    return Tokenizer::from_gguf(std::move(*vocabulary));
  }
  if (path.ends_with(".json")) return Tokenizer::from_json(read_all(path), "");
  if (std::filesystem::is_directory(path)) return Tokenizer::from_folder(path);
  const std::string content = read_all(path);
  return pelton::text::looks_like_tiktoken(content) ? pelton::text::from_tiktoken(content, "")
                                                    : pelton::text::from_sentencepiece(content, "");
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
    // Processor time: other programs on the machine must not count.
    const std::clock_t start = std::clock();
    const auto ids = (*tokenizer)->encode(text, {false, false, {}});
    std::cout << static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC << ' ' << ids.size()
              << std::endl;
  }
  return 0;
}
