#include "board/page.h"

#include <fmt/format.h>

#include <span>

#include "base/file.h"
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

}  // namespace

void add_page(http::Router& router, const PageSettings& settings) {
  for (const PageFile& file : std::span(kPageFiles, kNumPageFiles)) {
    add_file(router, file, std::string(file.path));
    if (file.path == "/index.html") add_file(router, file, "/");
    // Browsers ask for it where a document names no icon: for one, when the icon itself is opened.
    if (file.path == "/icon.svg") add_file(router, file, "/favicon.ico");
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

}  // namespace danlu::board
