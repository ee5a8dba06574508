// Model files outside the repository, for tests. PELTON_MODELS is a colon-separated search path,
// ./models by default. A test that needs a file which is not there skips; with
// PELTON_REQUIRE_MODELS=1 it fails.
//
//   const auto path = pelton::testing::find_model("tiny.gguf");
//   if (!path) GTEST_SKIP() << "no tiny.gguf in PELTON_MODELS";
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::testing {

// `name` is relative to an entry of the search path: a file or a folder.
inline std::optional<std::filesystem::path> find_model(std::string_view name) {
  const char* variable = std::getenv("PELTON_MODELS");
  const std::string search = variable != nullptr ? variable : "./models";
  for (size_t begin = 0; begin <= search.size();) {
    const size_t end = std::min(search.find(':', begin), search.size());
    const auto path = std::filesystem::path(search.substr(begin, end - begin)) / name;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
    begin = end + 1;
  }
  const char* required = std::getenv("PELTON_REQUIRE_MODELS");
  if (required != nullptr && std::string_view(required) == "1")
    ADD_FAILURE() << name << " is not in PELTON_MODELS (" << search << ")";
  return std::nullopt;
}

}  // namespace pelton::testing
