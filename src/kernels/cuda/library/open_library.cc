#include "kernels/cuda/library/open_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

namespace pelton::kernels::cuda {
namespace {

namespace fs = std::filesystem;

// Folders directly below `parent` whose names begin with `prefix`, sorted.
std::vector<fs::path> folders_below(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix) && at->is_directory(error)) {
      found.push_back(at->path());
    }
    error.clear();
  }
  std::sort(found.begin(), found.end());
  return found;
}

void* try_folder(const std::string& folder, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string path = (fs::path(folder) / name).string();
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return handle;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> python_library_folders(std::span<const std::string> prefixes) {
  std::vector<std::string> folders;
  for (const std::string& prefix : prefixes) {
    for (const fs::path& python : folders_below(fs::path(prefix) / "lib", "python3")) {
      for (const char* kind : {"site-packages", "dist-packages"}) {
        for (const fs::path& package : folders_below(python / kind / "nvidia", "")) {
          folders.push_back((package / "lib").string());
        }
      }
    }
  }
  return folders;
}

void* open_library(std::span<const std::string_view> names, const LibrarySearch& search) {
  for (const std::string& folder : search.folders) {
    if (void* handle = try_folder(folder, names); handle != nullptr) return handle;
  }
  for (const std::string_view name : names) {
    if (void* handle = dlopen(std::string(name).c_str(), RTLD_NOW | RTLD_LOCAL);
        handle != nullptr) {
      return handle;
    }
  }
  for (const std::string& folder : python_library_folders(search.python_prefixes)) {
    if (void* handle = try_folder(folder, names); handle != nullptr) return handle;
  }
  return nullptr;
}

}  // namespace pelton::kernels::cuda
