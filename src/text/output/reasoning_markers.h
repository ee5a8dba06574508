// What stands before and behind reasoning.
#pragma once

#include <string_view>

#include "text/output/output_parser.h"

namespace pelton::text {

struct ReasoningMarkers {
  std::string_view open;
  std::string_view close;
};

ReasoningMarkers reasoning_markers(ReasoningFormat format);

}  // namespace pelton::text
