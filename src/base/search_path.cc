#include "base/search_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <system_error>
#include <vector>

namespace pelton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownCandidates = 8;

// Calls `visit` with each folder of a colon-separated list until it returns true.
template <typename Visit>
void each_folder(std::string_view search_path, Visit visit) {
  while (!search_path.empty()) {
    const size_t colon = search_path.find(':');
    if (visit(fs::path(search_path.substr(0, colon)))) return;
    search_path.remove_prefix(std::min(colon, search_path.size() - 1) + 1);
  }
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Whether `name` is a whole beginning of `candidate`.
bool begins(std::string_view candidate, std::string_view name) {
  if (candidate.size() < name.size()) return false;
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  if (!std::equal(name.begin(), name.end(), candidate.begin(), same)) return false;
  return candidate.size() == name.size() ||
         std::string_view(".-_").find(candidate[name.size()]) != std::string_view::npos;
}

// "-00002-of-00005.gguf": not the part that the others are opened through.
bool later_part(std::string_view name) {
  const size_t of = name.rfind("-of-");
  return of != std::string_view::npos && of >= 6 && name.substr(of - 6, 6) != "-00001";
}

bool is_model(const fs::directory_entry& entry) {
  std::error_code ignored;
  if (entry.is_directory(ignored)) return fs::exists(entry.path() / "config.json", ignored);
  return entry.path().extension() == ".gguf" && !later_part(entry.path().filename().string());
}

// File name to path; of equal names the one in the first folder.
std::map<std::string, fs::path> models_that_begin(std::string_view name,
                                                  std::string_view search_path) {
  std::map<std::string, fs::path> found;
  each_folder(search_path, [&](const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string file = it->path().filename().string();
      if (begins(file, name) && is_model(*it)) found.emplace(file, it->path());
    }
    return false;
  });
  return found;
}

}  // namespace

fs::path find_in_search_path(const fs::path& name, std::string_view search_path) {
  std::error_code ignored;
  if (name.is_absolute() || fs::exists(name, ignored)) return name;
  fs::path found = name;
  each_folder(search_path, [&](const fs::path& folder) {
    if (!fs::exists(folder / name, ignored)) return false;
    found = folder / name;
    return true;
  });
  return found;
}

Result<fs::path> find_model(const fs::path& name, std::string_view search_path) {
  const std::string text = name.string();
  const fs::path exact = find_in_search_path(name, search_path);
  std::error_code ignored;
  if (!text.empty() && fs::exists(exact, ignored)) return exact;
  const Status missing = not_found(text + ": no such file or folder");
  if (text.empty() || text.find('/') != std::string::npos) return missing;
  const auto found = models_that_begin(text, search_path);
  if (found.empty()) return missing;
  if (found.size() == 1) return found.begin()->second;
  std::vector<std::string> names;
  for (const auto& [file, path] : found) {
    if (names.size() < kShownCandidates) names.push_back(file);
  }
  if (found.size() > names.size())
    names.push_back(fmt::format("{} more", found.size() - names.size()));
  return invalid_argument(
      fmt::format("{} may be any of {}: give more of its name", text, fmt::join(names, ", ")));
}

}  // namespace pelton
