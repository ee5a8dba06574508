#include "base/search_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace pelton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FindModel : public ::testing::Test {
 protected:
  FindModel() {
    for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-360m.gguf", "notes.txt",
                             "big-00001-of-00002.gguf", "big-00002-of-00002.gguf"})
      first_.write(name, "x");
    second_.write("SmolLM2-135M-Instruct.Q4_1.gguf", "y");
    second_.write("other_model.gguf", "x");
    std::filesystem::create_directory(second_.path() / "qwen-folder");
    second_.write("qwen-folder/config.json", "{}");
    std::filesystem::create_directory(second_.path() / "qwenless");
  }

  Result<std::filesystem::path> find(const std::string& name) const {
    return find_model(name,
                      first_.path().string() + "::/no/such/folder:" + second_.path().string());
  }

  testing::TempDir first_, second_;
};

TEST_F(FindModel, WholeNamesComeFirst) {
  EXPECT_EQ(*find("other_model.gguf"), second_.path() / "other_model.gguf");
  EXPECT_EQ(*find("qwenless"), second_.path() / "qwenless");
  EXPECT_EQ(*find("notes.txt"), first_.path() / "notes.txt");
}

TEST_F(FindModel, TheBeginningOfOneNameIsEnough) {
  EXPECT_EQ(*find("SmolLM2-135M-Instruct"), first_.path() / "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(*find("smollm2-135m"), first_.path() / "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(*find("qwen"), second_.path() / "qwen-folder");
  EXPECT_EQ(*find("other"), second_.path() / "other_model.gguf");
  EXPECT_EQ(*find("big"), first_.path() / "big-00001-of-00002.gguf");
}

TEST_F(FindModel, SeveralAreAnErrorThatNamesThem) {
  const Status status = find("smollm2").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("SmolLM2-135M-Instruct.Q4_1.gguf"),
                                      HasSubstr("smollm2-360m.gguf"), Not(HasSubstr("other"))));
}

TEST_F(FindModel, WhatFitsNothingIsNotFound) {
  for (const char* name : {"", "smol", "notes", "SmolLM2-135M-Instruct.Q4_1.ggu", "./smollm2-135m",
                           "/smollm2-135m", "qwenless/x"}) {
    EXPECT_EQ(find(name).status().code(), StatusCode::kNotFound) << name;
  }
}

}  // namespace
}  // namespace pelton
