// board/serve_board.h: `danlu board`, in a library of its own (libdanlu_web.so) that the program
// opens when it is asked for.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace danlu::board {

struct BoardRequest {
  std::vector<std::filesystem::path> directories;
  std::string host = "127.0.0.1";
  uint16_t port = 7860;           ///< 0: one that is free
  std::vector<std::string> keys;  ///< none: who reaches the address may look
  bool opens_browser = false;
  std::string version;
};

/// Serves until a signal comes; then returns. Prints the address on standard output. Errors: as
/// http::Server::start; IoError for a directory that cannot be read.
void serve_board(const BoardRequest& request);

/// What the library exports as "danlu_board_serve".
using ServeBoard = void (*)(const BoardRequest* request);

/// Errors: IoError naming the first that cannot be read.
void require_directories(const std::vector<std::filesystem::path>& directories);

}  // namespace danlu::board
