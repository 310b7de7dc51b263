# Builds the page of danlu board and danlu serve into the room `board`: what lies in page/, the libraries it
# uses (tools/deps/npm-page.txt, fetched by tools/deps.sh) and their licences.
set(page_libraries ${CMAKE_SOURCE_DIR}/.deps/page)

# Appends a file to page_files, as an element of board::kPageFiles.
function(danlu_page_file path type file)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "The page is made with ${file}, which is missing: make deps fetches it with npm")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} content)
  string(APPEND page_files "    {\"${path}\", \"${type}; charset=utf-8\", R\"danlu(${content})danlu\"sv},\n")
  set(page_files "${page_files}" PARENT_SCOPE)
endfunction()

function(danlu_page room)
  set(page_files "")
  file(GLOB_RECURSE files RELATIVE ${CMAKE_SOURCE_DIR}/page CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/page/*)
  foreach(file ${files})
    get_filename_component(ending ${file} LAST_EXT)
    set(type_.html text/html)
    set(type_.css text/css)
    set(type_.js text/javascript)
    set(type_.svg image/svg+xml)
    if(NOT DEFINED type_${ending})
      message(FATAL_ERROR "page/${file}: cmake/page.cmake knows no type for ${ending}")
    endif()
    danlu_page_file(/${file} ${type_${ending}} ${CMAKE_SOURCE_DIR}/page/${file})
  endforeach()
  danlu_page_file(/lib/uplot.js text/javascript ${page_libraries}/uplot/dist/uPlot.esm.js)
  danlu_page_file(/lib/uplot.css text/css ${page_libraries}/uplot/dist/uPlot.min.css)
  danlu_page_file(/lib/marked.js text/javascript ${page_libraries}/marked/lib/marked.esm.js)
  danlu_page_file(/lib/purify.js text/javascript ${page_libraries}/dompurify/dist/purify.es.mjs)
  foreach(library uplot marked dompurify)
    danlu_page_file(/lib/${library}.LICENSE.txt text/plain ${page_libraries}/${library}/LICENSE)
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/embedded/${room}_page.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
#include "board/page.h"

namespace danlu::board {
using namespace std::string_view_literals;
const PageFile kPageFiles[] = {
@page_files@};
const size_t kNumPageFiles = std::size(kPageFiles);
}  // namespace danlu::board
]])
  target_sources(danlu_${room} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES GENERATED ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
