// http/guards.h: who may ask a server: keys, origins of pages, names of this host.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace danlu::http {

/// The answer to who may not. `message` is a sentence in English, `code` a word for programs.
using RefusalBody =
    std::function<Response(int status, const std::string& message, const std::string& code)>;

struct AccessSettings {
  std::vector<std::string> api_keys = {};  ///< none: everybody may ask
  /// Origins of pages elsewhere that may ask ("https://chat.example.com"), or "*".
  std::vector<std::string> allowed_origins = {};
  /// The server listens on this machine alone: a request for another host's name comes from a page
  /// that was given this address under its own name.
  bool is_loopback = true;
  std::string host = {};  ///< a name that it goes by, too
  /// Further paths that need no key: exact, or beginnings that end in '/'. "/" is itself alone.
  std::vector<std::string> open_paths = {};
  RefusalBody refusal = {};  ///< empty: text/plain
  /// The flag that allows other hosts' names and origins, for errors; "": none does.
  std::string allowing_flag = {};
};

/// Whether only this machine reaches what listens on `host`, an address or a name.
bool is_loopback(const std::string& host);

/// Takes as long wherever the two differ.
bool is_same_secret(std::string_view given, std::string_view known);

/// Answers preflights, and refuses requests of other origins but for open paths (403), to a server
/// of this machine alone for other hosts' names (403; addresses nobody can give away), and without
/// a key (401). Pages of an allowed origin may read what follows.
void add_guards(const AccessSettings& settings, Router* router);

}  // namespace danlu::http
