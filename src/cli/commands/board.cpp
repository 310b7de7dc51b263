// `danlu board`: the page that shows training runs, of this process or of others.
#include <dlfcn.h>

#include "base/error.h"
#include "base/own_library.h"
#include "board/serve_board.h"
#include "cli/api_keys.h"
#include "cli/commands/commands.h"

namespace danlu::cli {
namespace {

/// HTTP, TLS and the page lie in a library of their own: no other verb needs them.
board::ServeBoard open_web_library() {
  const auto path = own_library("libdanlu_web.so");
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? ::dlsym(library, "danlu_board_serve") : nullptr;
  if (!symbol) {
    const char* why = ::dlerror();
    throw IoError(tr("{}: cannot be loaded: {}", path.string(), why ? why : "?"),
                  tr("build it: make build"));
  }
  return reinterpret_cast<board::ServeBoard>(symbol);
}

}  // namespace

OptionTable board_options() {
  const std::string address = "Address";
  return OptionTable(
      "board", "show training runs in the browser: curves, settings, logs, checkpoints, answers",
      "danlu board [DIR…] [--host ADDRESS] [--port N] [--api-key KEY]",
      {
          {.name = "host",
           .default_text = "127.0.0.1",
           .help = "the address to listen on; 0.0.0.0: every one of this machine",
           .group = address},
          {.name = "port",
           .type = OptionType::kInt,
           .default_text = "7860",
           .help = "0: one that is free",
           .range = at_least(0).up_to(65535),
           .group = address},
          {.name = "api_key",
           .type = OptionType::kList,
           .help = "ask for one of these keys; the page has a field for it",
           .group = address},
          {.name = "open",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "open it in the desktop's browser",
           .group = address},
      });
}

int run_board(const Options& options) {
  board::BoardRequest request;
  for (const std::string& directory : options.positional())
    request.directories.emplace_back(directory);
  if (request.directories.empty()) request.directories.emplace_back(".");
  request.host = options.get_string("host");
  request.port = static_cast<uint16_t>(options.get_int("port"));
  request.keys = api_keys_from(options);
  request.opens_browser = options.get_bool("open");
  request.version = DANLU_VERSION;
  open_web_library()(&request);
  return static_cast<int>(ExitCode::kSuccess);
}

}  // namespace danlu::cli
