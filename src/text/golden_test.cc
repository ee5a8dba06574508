// Ids and texts equal those of the reference libraries (tools/dev/tokenizer_goldens.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/models.h"
#include "text/testing/read_gguf_vocabulary.h"
#include "text/tokenizer.h"

namespace pelton::text {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(PELTON_SOURCE_DIR) / "tests/golden/text";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class Fnv {
 public:
  void add(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      for (int shift = 0; shift < 32; shift += 8) byte(static_cast<uint32_t>(id) >> shift & 0xFF);
    }
  }
  void add(const std::string& text) {
    for (const char c : text) byte(static_cast<uint8_t>(c));
  }
  std::string hex() const { return fmt::format("{:08x}", value_); }

 private:
  void byte(uint32_t b) { value_ = (value_ ^ b) * 0x01000193u; }
  uint32_t value_ = 0x811C9DC5u;
};

const Json& corpus() {
  static const Json texts = Json::parse(read(kGoldens / "corpus.json"));
  return texts;
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                   const std::vector<int32_t>& ids, bool skip) {
  StreamingDetokenizer detokenizer(tokenizer, skip);
  std::string out;
  for (const int32_t id : ids) out += detokenizer.push(id);
  return out + detokenizer.finish();
}

void compare(const std::shared_ptr<const Tokenizer>& tokenizer, const fs::path& golden_path) {
  const Json golden = Json::parse(read(golden_path));
  const std::string hashes = golden["hashes"];
  const bool decode = golden["decode"];
  ASSERT_EQ(hashes.size(), corpus().size() * 8);
  int wrong = 0;
  for (size_t i = 0; i < corpus().size(); ++i) {
    const std::string text = corpus()[i];
    const auto plain = tokenizer->encode(text, {false, false, {}});
    const auto special = tokenizer->encode(text, {true, true, {}});
    const std::string full = std::to_string(i);
    if (golden["full"].contains(full)) {
      EXPECT_EQ(special, golden["full"][full].get<std::vector<int32_t>>()) << text;
    }
    Fnv hash;
    hash.add(plain);
    hash.add(special);
    for (const bool skip : {false, true}) {
      const std::string decoded = tokenizer->decode(special, skip);
      EXPECT_EQ(decoded, stream(tokenizer, special, skip)) << text;
      if (decode) hash.add(decoded);
    }
    if (hash.hex() != hashes.substr(i * 8, 8) && ++wrong <= 5) {
      ADD_FAILURE() << golden_path.filename() << ", text " << i << ": " << text;
    }
    for (const int32_t id : special) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer->vocab_size());
    }
  }
  EXPECT_EQ(wrong, 0);
  const std::string strange_hashes = golden["strange_hashes"];
  for (size_t i = 0; i < golden["strange"].size(); ++i) {
    const auto ids = golden["strange"][i].get<std::vector<int32_t>>();
    const std::string decoded = tokenizer->decode(ids, true);
    EXPECT_EQ(decoded, stream(tokenizer, ids, true));
    Fnv hash;
    hash.add(decoded);
    if (decode) {
      EXPECT_EQ(hash.hex(), strange_hashes.substr(i * 8, 8)) << i << ": " << decoded;
    }
  }
}

std::vector<std::string> tiny_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens / "tiny")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".golden.json")) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TinyTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyTokenizer, EqualsReference) {
  auto tokenizer = Tokenizer::from_json(read(kGoldens / "tiny" / (GetParam() + ".json")), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  compare(*tokenizer, kGoldens / "tiny" / (GetParam() + ".golden.json"));
}

INSTANTIATE_TEST_SUITE_P(All, TinyTokenizer, ::testing::ValuesIn(tiny_names()),
                         [](const auto& info) { return info.param; });

class RealTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(RealTokenizer, EqualsReference) {
  const auto path = pelton::testing::find_model(GetParam());
  if (!path) GTEST_SKIP() << GetParam() << " is not in PELTON_MODELS";
  auto tokenizer = fs::is_directory(*path)
                       ? Tokenizer::from_folder(*path)
                       : Tokenizer::from_gguf(read_gguf_vocabulary(*path).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  compare(*tokenizer, kGoldens / (GetParam() + ".golden.json"));
}

INSTANTIATE_TEST_SUITE_P(
    All, RealTokenizer,
    ::testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf",
                      "qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", "runnel-2m"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace pelton::text
