// Where a bare file name is looked for.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace pelton {

// `name` itself when it exists or is absolute; else the first `folder/name` that exists, over the
// colon-separated folders of `search_path`; else `name`.
std::filesystem::path find_in_search_path(const std::filesystem::path& name,
                                          std::string_view search_path);

// As find_in_search_path; a name without a slash that stands nowhere may also be the beginning of
// one, up to a '.', '-' or '_' and whatever its case: "SmolLM2-135M-Instruct" is
// SmolLM2-135M-Instruct.Q4_1.gguf where that is the only model it fits. Models are .gguf files (of
// split ones the first part) and folders with a config.json. kNotFound when there is none,
// kInvalidArgument naming the candidates when there are several.
Result<std::filesystem::path> find_model(const std::filesystem::path& name,
                                         std::string_view search_path);

}  // namespace pelton
