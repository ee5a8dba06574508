// Where the repository lies, for tests that read its data. Known to one source alone, so that a
// compiler cache serves all others from any folder.
#pragma once

#include <filesystem>

namespace pelton {

std::filesystem::path source_root();

}  // namespace pelton
