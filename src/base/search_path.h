// Where a bare file name is looked for.
#pragma once

#include <filesystem>
#include <string_view>

namespace pelton {

// `name` itself when it exists or is absolute; else the first `folder/name` that exists, over the
// colon-separated folders of `search_path`; else `name`.
std::filesystem::path find_in_search_path(const std::filesystem::path& name,
                                          std::string_view search_path);

}  // namespace pelton
