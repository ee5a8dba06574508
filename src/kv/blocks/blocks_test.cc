#include <gtest/gtest.h>

namespace pelton::kv {
namespace {}  // namespace
}  // namespace pelton::kv
