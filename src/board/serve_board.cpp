#include "board/serve_board.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "board/answers.h"
#include "board/board.h"
#include "board/page.h"
#include "http/guards.h"
#include "http/server.h"

namespace danlu::board {
namespace {

constexpr double kDrain_s = 0.5;
constexpr auto kLook = std::chrono::milliseconds(100);

/// Where there is no desktop nothing happens: the address was printed.
void open_browser(std::string url) {
  std::string program = "xdg-open";
  char* const words[] = {program.data(), url.data(), nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, words[0], nullptr, nullptr, words, environ) != 0) return;
  std::thread([child] { ::waitpid(child, nullptr, 0); }).detach();
}

}  // namespace

void require_directories(const std::vector<std::filesystem::path>& directories) {
  for (const auto& directory : directories) {
    std::error_code error;
    std::filesystem::directory_iterator entries(directory, error);
    if (error)
      throw IoError(
          tr("[board] {}: cannot be read: {}", directory.string(), error.message()),
          tr("name directories with runs in them, such as the --output_dir of danlu sft"));
  }
}

void serve_board(const BoardRequest& request) {
  require_directories(request.directories);
  Board board(request.directories);
  http::Router router;
  router.set_error_body(error_answer);
  http::add_guards({.api_keys = request.keys,
                    .is_loopback = http::is_loopback(request.host),
                    .host = request.host,
                    .open_paths = page_paths(),
                    .refusal = [](int status, const std::string& message,
                                  const std::string&) { return error_answer(status, message); }},
                   &router);
  board.add_routes(router);
  add_page(router, {.has_runs = true,
                    .has_chat = false,
                    .needs_key = !request.keys.empty(),
                    .version = request.version});
  http::Settings settings;
  settings.host = request.host;
  settings.port = request.port;
  settings.max_body_bytes = 4096;  // nobody sends one
  http::Server server(std::move(settings), std::move(router));
  server.start();
  watch_interrupts();
  if (!http::is_loopback(request.host) && request.keys.empty())
    log::warning("whoever reaches {} sees these runs: --api-key asks for a key", request.host);
  std::puts((server.url() + "/").c_str());
  std::fflush(stdout);
  log::info("the board is at the address above; Ctrl-C ends it");
  if (request.opens_browser) open_browser(server.url() + "/");
  while (pending_interrupt() == 0) std::this_thread::sleep_for(kLook);
  board.end();
  server.stop(kDrain_s);
}

}  // namespace danlu::board

extern "C" void danlu_board_serve(const danlu::board::BoardRequest* request) {
  danlu::board::serve_board(*request);
}
