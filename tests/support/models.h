// Model files outside the repository, for tests. PELTON_MODELS is a colon-separated search path,
// ./models by default. A test that needs a file which is not there skips; with
// PELTON_REQUIRE_MODELS=1 it fails if the file is one that tools/test.sh brings: the model it
// fetches, and the small trained models where their folder (known by text/held_out.txt) exists.
//
//   const auto path = pelton::testing::find_model("tiny.gguf");
//   if (!path) GTEST_SKIP() << "no tiny.gguf in PELTON_MODELS";
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/search_path.h"

namespace pelton::testing {

namespace internal {

inline std::optional<std::filesystem::path> look_up(std::string_view name,
                                                    std::string_view search) {
  const std::filesystem::path path = find_in_search_path(name, search);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  return std::nullopt;
}

}  // namespace internal

// `name` is relative to an entry of the search path: a file or a folder.
inline std::optional<std::filesystem::path> find_model(std::string_view name) {
  const char* variable = std::getenv("PELTON_MODELS");
  const std::string search = variable != nullptr ? variable : "./models";
  if (auto path = internal::look_up(name, search)) return path;
  const char* required = std::getenv("PELTON_REQUIRE_MODELS");
  if (required == nullptr || std::string_view(required) != "1") return std::nullopt;
  const bool fetched = name == "SmolLM2-135M-Instruct.Q4_1.gguf";
  const bool small =
      name.starts_with("runnel-") && internal::look_up("text/held_out.txt", search).has_value();
  if (fetched || small) ADD_FAILURE() << name << " is not in PELTON_MODELS (" << search << ")";
  return std::nullopt;
}

}  // namespace pelton::testing
