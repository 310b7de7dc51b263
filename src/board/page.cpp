#include "board/page.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "base/file.h"
#include "base/lower_case.h"
#include "board/answers.h"

namespace danlu::board {
namespace {

/// Scripts and styles are this server's files, and what a script makes of text to HTML has gone
/// through DOMPurify, which the browser itself sees to (trusted types).
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify";

http::Response file_answer(const PageFile& file, const std::string& tag, bool is_known) {
  http::Headers headers = {{"Content-Type", std::string(file.type)},
                           {"Content-Security-Policy", kPolicy},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           {"Cross-Origin-Resource-Policy", "same-origin"},
                           {"Cache-Control", "no-cache"},
                           {"ETag", tag}};
  if (is_known) return {.status = 304, .headers = std::move(headers), .body = ""};
  return {.status = 200, .headers = std::move(headers), .body = std::string(file.content)};
}

void add_file(http::Router& router, const PageFile& file, const std::string& path) {
  const std::string tag = fmt::format("\"{:016x}\"", hash_bytes(file.content));
  router.add("GET", path, [&file, tag](const http::ExchangePtr& exchange) {
    const std::string* known = http::find_header(exchange->request().headers, "If-None-Match");
    exchange->respond(file_answer(file, tag, known && *known == tag));
  });
}

/// Looks at every byte of the key that was sent, whatever the first ones are.
bool is_same_key(std::string_view key, std::string_view sent) {
  unsigned difference = key.size() == sent.size() ? 0 : 1;
  for (size_t i = 0; i < sent.size(); ++i) {
    const char of_key = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(of_key ^ sent[i]);
  }
  return difference == 0;
}

bool is_guarded(std::string_view path) {
  if (path == "/api/page") return false;
  for (const std::string_view below : {"/api", "/v1"}) {
    if (path == below || (path.starts_with(below) && path[below.size()] == '/')) return true;
  }
  return false;
}

/// "localhost" of "localhost:8000", "::1" of "[::1]:8000".
std::string name_of(const std::string& host_header) {
  if (host_header.starts_with('[')) return host_header.substr(1, host_header.find(']') - 1);
  return lower_case(host_header.substr(0, host_header.find(':')));
}

bool is_address(const std::string& name) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

}  // namespace

void add_page(http::Router& router, const PageSettings& settings) {
  for (const PageFile& file : std::span(kPageFiles, kNumPageFiles)) {
    add_file(router, file, std::string(file.path));
    if (file.path == "/index.html") add_file(router, file, "/");
  }
  const Json about = {{"runs", settings.has_runs},
                      {"chat", settings.has_chat},
                      {"needs_key", settings.needs_key},
                      {"version", settings.version}};
  router.add("GET", "/api/page",
             [about](const http::ExchangePtr& exchange) { exchange->respond(json_answer(about)); });
}

std::vector<std::string> page_paths() {
  std::vector<std::string> paths = {"/", "/api/page"};
  for (const PageFile& file : std::span(kPageFiles, kNumPageFiles)) paths.emplace_back(file.path);
  return paths;
}

http::Guard require_key(std::vector<std::string> keys) {
  return [keys = std::move(keys)](const http::Request& request,
                                  http::Headers*) -> std::optional<http::Response> {
    if (request.method == "OPTIONS" || !is_guarded(request.path)) return std::nullopt;
    const std::string* header = http::find_header(request.headers, "Authorization");
    std::string_view sent = header ? std::string_view(*header) : std::string_view();
    constexpr std::string_view kScheme = "Bearer ";
    const bool has_scheme = sent.starts_with(kScheme);
    if (has_scheme) sent.remove_prefix(kScheme.size());
    bool is_one = false;
    for (const std::string& key : keys) is_one = is_same_key(key, sent) || is_one;
    if (has_scheme && is_one) return std::nullopt;
    http::Response response = error_answer(401, "this server asks for an API key");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  };
}

http::Guard require_own_name(std::string host) {
  return [host = lower_case(host)](const http::Request& request,
                                   http::Headers*) -> std::optional<http::Response> {
    const std::string* header = http::find_header(request.headers, "Host");
    if (!header) return std::nullopt;  // no browser leaves it out
    const std::string name = name_of(*header);
    if (name == host || name == "localhost" || name.ends_with(".localhost") || is_address(name))
      return std::nullopt;
    return error_answer(403, "this server is not called that; open it as localhost");
  };
}

}  // namespace danlu::board
