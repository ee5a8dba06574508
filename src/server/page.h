// The web page: files of server/page/, built into the program.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/http_types.h"

namespace pelton::server {

struct PageFile {
  std::string_view path;  // "/" or "/page/NAME"
  std::string_view type;
  std::string_view content;
};

std::span<const PageFile> page_files();

// The file at `path` with the headers that keep it from loading or running anything of another
// origin; nothing when the page has no such file.
std::optional<HttpResponse> page_response(std::string_view path);

}  // namespace pelton::server
