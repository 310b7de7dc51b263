// board/page.h: the page of danlu board and danlu serve: its files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace danlu::board {

/// What the server has, which the page shows.
struct PageSettings {
  bool has_runs = false;   ///< Board::add_routes was called
  bool has_chat = false;   ///< /v1/chat/completions is served here
  bool needs_key = false;  ///< Authorization: Bearer … is asked for
  std::string version;     ///< of the program
};

/// GET / and the page's other files, and /api/page, which tells the settings. They hold nothing of
/// the user's and ask for no key.
void add_page(http::Router& router, const PageSettings& settings);

/// The paths of add_page, for a guard that asks for keys.
std::vector<std::string> page_paths();

/// One file of the page, built into the program (cmake/page.cmake).
struct PageFile {
  std::string_view path;  ///< "/js/main.js"
  std::string_view type;  ///< "text/javascript; charset=utf-8"
  std::string_view content;
};
extern const PageFile kPageFiles[];
extern const size_t kNumPageFiles;

}  // namespace danlu::board
