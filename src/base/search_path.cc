#include "base/search_path.h"

#include <algorithm>
#include <system_error>

namespace pelton {

std::filesystem::path find_in_search_path(const std::filesystem::path& name,
                                          std::string_view search_path) {
  std::error_code ignored;
  if (name.is_absolute() || std::filesystem::exists(name, ignored)) return name;
  while (!search_path.empty()) {
    const size_t colon = search_path.find(':');
    const std::filesystem::path candidate =
        std::filesystem::path(search_path.substr(0, colon)) / name;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
    search_path.remove_prefix(std::min(colon, search_path.size() - 1) + 1);
  }
  return name;
}

}  // namespace pelton
