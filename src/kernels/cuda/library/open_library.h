// Shared libraries of NVIDIA's, opened when first needed: the program links none of them and starts
// where there is none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::kernels::cuda {

// Folders of Python packages below `prefixes` (an environment's root, say /usr/local) that hold
// NVIDIA libraries: PREFIX/lib/python3*/{site,dist}-packages/nvidia/*/lib, in a fixed order.
std::vector<std::string> python_library_folders(std::span<const std::string> prefixes);

// Where libraries are looked for, in this order: `folders` that the user named, the system's own
// search by name, folders of Python packages.
struct LibrarySearch {
  std::vector<std::string> folders;
  std::vector<std::string> python_prefixes = {"/usr/local", "/usr"};
};

// A handle of dlopen, never closed; null where no place has it. `names` are tried in order in each.
void* open_library(std::span<const std::string_view> names, const LibrarySearch& search);

}  // namespace pelton::kernels::cuda
