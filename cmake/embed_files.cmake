# Writes a C++ file that holds files of a folder: cmake -DROOT=FOLDER -DOUT=FILE.cc -P embed_files.cmake
# server/page.h says what the program sees of them.
file(GLOB names RELATIVE ${ROOT} ${ROOT}/*.html ${ROOT}/*.css ${ROOT}/*.js ${ROOT}/*.svg)
list(SORT names)
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_svg "image/svg+xml")

set(arrays "")
set(entries "")
set(index 0)
foreach(name ${names})
  file(READ ${ROOT}/${name} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "// ${name}\nconst unsigned char kFile${index}[] = {\n${hex}};\n")
  string(REGEX REPLACE "^.*\\." "" ending ${name})
  set(path "/page/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  endif()
  string(APPEND entries "  {\"${path}\", \"${types_${ending}}\", {reinterpret_cast<const char*>(kFile${index}), ${bytes}}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE ${OUT}.new "// Made by cmake/embed_files.cmake.
#include \"server/page.h\"

namespace pelton::server {
namespace {

${arrays}
const PageFile kFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace pelton::server
")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
file(TOUCH ${OUT})
