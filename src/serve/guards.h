// serve/guards.h: who may ask: keys, origins of pages, names of this host.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace danlu::serve {

struct AccessSettings {
  std::vector<std::string> api_keys = {};  ///< none: everybody may ask
  /// Origins of pages elsewhere that may ask ("https://chat.example.com"), or "*".
  std::vector<std::string> allowed_origins = {};
  /// The server listens on this machine alone: a request for another host's name comes from a page
  /// that was given this address under its own name.
  bool is_loopback = true;
  /// Further paths that need no key: exact, or beginnings that end in '/'. "/" is itself alone.
  std::vector<std::string> open_paths = {};
};

/// Takes as long wherever the two differ.
bool is_same_secret(std::string_view given, std::string_view known);

/// Answers preflights, and refuses requests of other origins (403), for other hosts' names (403)
/// and without a key (401). Pages of an allowed origin may read what follows.
void add_guards(const AccessSettings& settings, http::Router* router);

}  // namespace danlu::serve
