#include "cli/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/models.h"
#include "tests/support/temp_dir.h"
#include "weights/testing/gguf_writer.h"
#include "weights/testing/safetensors_writer.h"

namespace pelton::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TempDir;
using namespace weights::testing;

std::string inspect(const std::filesystem::path& path, bool as_json = false) {
  std::string out;
  const Status status =
      run_inspect({.model = path.string(), .model_path = "", .json = as_json}, &out);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

json inspect_json(const std::filesystem::path& path) { return json::parse(inspect(path, true)); }

TEST(Inspect, ShowsWhatAGgufHolds) {
  const TempDir dir;
  GgufSpec spec = small_gguf();
  spec.keys.emplace_back("tokenizer.ggml.model", encode_string("gpt2"));
  spec.keys.emplace_back("tokenizer.ggml.pre", encode_string("qwen2"));
  spec.keys.emplace_back("tokenizer.ggml.tokens", encode_strings({"a", "b", "c"}));
  spec.keys.emplace_back("tokenizer.chat_template", encode_string("{% if x %}\nrest"));
  const auto path = dir.write("m.gguf", write_gguf(spec));
  const std::string text = inspect(path);
  EXPECT_THAT(text, HasSubstr("GGUF v3, 16 tensors"));
  EXPECT_THAT(text, HasSubstr("gpt2 (pre qwen2), 3 tokens"));
  EXPECT_THAT(text, HasSubstr("15 bytes: {% if x %}\n"));
  EXPECT_THAT(text, HasSubstr("not runnable"));  // the configuration lacks everything
  EXPECT_THAT(text, HasSubstr(R"(["a", "", "\xff\x00z"])"));
  EXPECT_THAT(text, HasSubstr("[3, 256]"));
}

TEST(Inspect, JsonFollowsTheCommonSchema) {
  const TempDir dir;
  const json answer = inspect_json(dir.write("m.gguf", write_gguf(small_gguf())));
  EXPECT_EQ(answer["schema"], "pelton.inspect.1");
  EXPECT_EQ(answer["model"]["architecture"], "llama");
  EXPECT_EQ(answer["model"]["runnable"], false);
  EXPECT_TRUE(answer["model"]["error"].is_string());
  for (const char* key : {"cpu", "isa", "threads", "gpu"})
    EXPECT_TRUE(answer["machine"].contains(key)) << key;
  ASSERT_EQ(answer["rows"].size(), 16u);
  uint64_t bytes = 0;
  double percent = 0;
  for (const json& row : answer["rows"]) {
    for (const char* key : {"name", "value", "unit", "limit", "percent", "spread"})
      EXPECT_TRUE(row.contains(key)) << key;
    bytes += row["value"].get<uint64_t>();
    percent += row["percent"].get<double>();
  }
  EXPECT_EQ(bytes, answer["model"]["tensor_bytes"]);
  EXPECT_NEAR(percent, 100.0, 1e-9);
  EXPECT_EQ(answer["tensors"].size(), 16u);
  EXPECT_EQ(answer["tensors"][0]["shape"], json({3, 8}));
  EXPECT_EQ(answer["metadata"].size(), small_gguf().keys.size());
  EXPECT_TRUE(answer["tokenizer"]["kind"].is_null());
}

TEST(Inspect, ShowsWhatAFolderHolds) {
  const TempDir dir;
  dir.write("model.safetensors", write_safetensors(small_safetensors()));
  dir.write("config.json", R"({"model_type":"mystery","hidden_size":8,"list":[1,2]})");
  dir.write("tokenizer.json",
            R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b",["a","b"]]},
                "added_tokens":[{"id":7,"content":"<s>"}],"x":{"model":{"type":"WordPiece"}}})");
  dir.write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"x","template":"no"},{"name":"default","template":"yes"}]})");
  const json answer = inspect_json(dir.path());
  EXPECT_EQ(answer["model"]["container"], "safetensors");
  EXPECT_EQ(answer["model"]["architecture"], "mystery");
  EXPECT_EQ(answer["tokenizer"], json({{"kind", "BPE"}, {"vocab_size", 8}, {"merges", 2}}));
  EXPECT_EQ(answer["chat_template"]["first_line"], "yes");
  EXPECT_EQ(answer["tensors"].size(), 5u);
  EXPECT_EQ(answer["tensors"][4]["format"], "I64");  // what Pelton steps over comes last
  EXPECT_THAT(inspect(dir.path()), HasSubstr("config.list"));
  dir.write("chat_template.jinja", "file");
  EXPECT_EQ(inspect_json(dir.path())["chat_template"]["first_line"], "file");
}

TEST(Inspect, AFolderNeedsNothingButWeights) {
  const TempDir dir;
  const auto path = dir.write("model.safetensors", write_safetensors(small_safetensors()));
  EXPECT_THAT(inspect(dir.path()), HasSubstr("tokenizer       none"));
  EXPECT_THAT(inspect(path), HasSubstr("a.weight"));
}

TEST(Inspect, NothingReachesTheTerminalRaw) {
  const TempDir dir;
  GgufSpec spec;
  spec.keys = {{"general.name", encode_string("x\x1b[31m\n")},
               {"k\x1b", encode_string("\x1b]0;t\x07")}};
  spec.tensors = {{"t\x1b[2J", 0, {1}, std::string(4, 'd')}};
  const auto path = dir.write("m.gguf", write_gguf(spec));
  EXPECT_EQ(inspect(path).find('\x1b'), std::string::npos);
  EXPECT_EQ(inspect(path, true).find('\x1b'), std::string::npos);
}

TEST(Inspect, BadFilesAreOneLineAndNoOutput) {
  const TempDir dir;
  std::string out;
  for (const auto& path :
       {dir.write("bad.gguf", "GGUF"), dir.path() / "missing.gguf", dir.path()}) {
    const Status status =
        run_inspect({.model = path.string(), .model_path = "", .json = false}, &out);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(path.string()));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  dir.write("model.safetensors", write_safetensors(small_safetensors()));
  dir.write("tokenizer.json", "{");
  EXPECT_THAT(
      run_inspect({.model = dir.path().string(), .model_path = "", .json = false}, &out).message(),
      HasSubstr("tokenizer.json: not valid JSON"));
  EXPECT_EQ(out, "");
}

TEST(Inspect, BareNamesAreLookedUp) {
  const TempDir dir;
  dir.write("only-here.gguf", write_gguf(small_gguf()));
  std::string out;
  EXPECT_TRUE(run_inspect({.model = "only-here.gguf",
                           .model_path = "/nonexistent::" + dir.path().string(),
                           .json = false},
                          &out)
                  .ok());
  EXPECT_FALSE(
      run_inspect({.model = "only-here.gguf", .model_path = "", .json = false}, &out).ok());
}

TEST(Inspect, RealModels) {
  int found = 0;
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf",
                           "qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", "runnel-2m"}) {
    const auto path = testing::find_model(name);
    if (!path) continue;
    ++found;
    const json answer = inspect_json(*path);
    EXPECT_EQ(answer["model"]["runnable"], true) << answer["model"];
    EXPECT_EQ(answer["model"]["vocab_size"], answer["tokenizer"]["vocab_size"]) << name;
  }
  if (found == 0) GTEST_SKIP() << "no real model in PELTON_MODELS";
}

}  // namespace
}  // namespace pelton::cli
