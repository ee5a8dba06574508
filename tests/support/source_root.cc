#include "tests/support/source_root.h"

namespace pelton {

std::filesystem::path source_root() { return PELTON_SOURCE_DIR; }

}  // namespace pelton
