// Shapes that drive the tests of the row ops: whole vectors of every level, ragged ends, one
// element, rows of real models.
#pragma once

#include <cstdint>

namespace pelton::ops {

struct RowCase {
  int64_t rows;
  int64_t columns;
};
inline constexpr RowCase kRowCases[] = {{1, 1},    {3, 7},    {2, 16},   {5, 33},  {1, 576},
                                        {40, 576}, {4, 1152}, {2, 2047}, {64, 640}};

struct RopeCase {
  int64_t heads;
  int64_t head_dim;
  int64_t rotary_dim;
};
inline constexpr RopeCase kRopeCases[] = {{9, 64, 64}, {2, 128, 128}, {1, 256, 256},
                                          {4, 80, 32}, {3, 24, 10},   {2, 8, 2}};

}  // namespace pelton::ops
