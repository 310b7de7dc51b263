#include "http/guards.h"

#include <arpa/inet.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/lower_case.h"

namespace danlu::http {
namespace {

/// Every server answers these without a key: they say nothing of anybody's texts.
const std::vector<std::string> kOpenPaths = {"/",        "/health",  "/ping",
                                             "/version", "/metrics", "/favicon.ico"};

bool is_in(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool is_open(const AccessSettings& settings, const std::string& path) {
  if (is_in(kOpenPaths, path)) return true;
  return std::any_of(
      settings.open_paths.begin(), settings.open_paths.end(), [&](const std::string& open) {
        return open == path || (open.size() > 1 && open.ends_with('/') && path.starts_with(open));
      });
}

/// "https://Host:443/" -> "host"; "Host:8000" -> "host:8000".
std::string authority_of(std::string_view text) {
  std::string_view standard;
  if (text.starts_with("http://")) standard = ":80";
  if (text.starts_with("https://")) standard = ":443";
  if (!standard.empty()) text.remove_prefix(text.find("//") + 2);
  text = text.substr(0, text.find('/'));
  std::string authority = lower_case(std::string(text));
  if (!standard.empty() && authority.ends_with(standard))
    authority.resize(authority.size() - standard.size());
  return authority;
}

std::string without_port(const std::string& authority) {
  const size_t colon = authority.rfind(':');
  if (colon == authority.npos || authority.ends_with(']')) return authority;
  return authority.substr(0, colon);
}

bool is_address(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

/// A page elsewhere can have its own name lead here, and no address.
bool names_this_machine(const std::string& authority, const std::string& own) {
  const std::string host = without_port(authority);
  return host == "localhost" || host.ends_with(".localhost") ||
         (!own.empty() && host == lower_case(own)) || is_address(host);
}

/// A server behind another one is asked by that one's scheme and standard port.
bool is_same_place(const std::string& origin, const std::string& host) {
  const std::string from = authority_of(origin);
  for (const char* scheme : {"", "http://", "https://"}) {
    if (from == authority_of(scheme + host)) return true;
  }
  return false;
}

class AccessGuard {
 public:
  explicit AccessGuard(AccessSettings settings) : settings_(std::move(settings)) {}

  std::optional<Response> ask(const Request& request, Headers* answer_headers) const {
    if (auto refused = check_host(request)) return refused;
    if (const std::string* origin = find_header(request.headers, "Origin")) {
      if (auto answer = check_origin(request, *origin, answer_headers)) return answer;
    }
    return check_key(request);
  }

 private:
  std::optional<Response> check_host(const Request& request) const {
    if (!settings_.is_loopback) return std::nullopt;
    const std::string* host = find_header(request.headers, "Host");
    if (!host || names_this_machine(lower_case(*host), settings_.host)) return std::nullopt;
    for (const std::string& origin : settings_.allowed_origins) {
      if (origin == "*" || is_same_place(origin, *host)) return std::nullopt;
    }
    return refusal(403,
                   "the request is for another host's name, and this server is for this machine "
                   "alone" +
                       how_to_allow(),
                   "host_not_allowed");
  }

  std::optional<Response> check_origin(const Request& request, const std::string& origin,
                                       Headers* answer_headers) const {
    const std::string* host = find_header(request.headers, "Host");
    const bool is_ours = host && is_same_place(origin, *host);
    const bool any = is_in(settings_.allowed_origins, "*");
    if (!is_ours && !any && !is_in(settings_.allowed_origins, origin)) {
      // A page's own files, which a proxy may ask for under another name; browsers say where a
      // module is asked from. Who may not ask cannot read them: nothing allows it to.
      if (request.method == "GET" && is_open(settings_, request.path)) return std::nullopt;
      return refusal(403, "pages of this origin may not ask" + how_to_allow(),
                     "origin_not_allowed");
    }
    if (!is_ours) {
      answer_headers->emplace_back("Access-Control-Allow-Origin", any ? "*" : origin);
      answer_headers->emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
      answer_headers->emplace_back("Vary", "Origin");
    }
    const bool is_preflight = request.method == "OPTIONS" &&
                              find_header(request.headers, "Access-Control-Request-Method");
    if (!is_preflight) return std::nullopt;
    const std::string* wanted = find_header(request.headers, "Access-Control-Request-Headers");
    return Response{.status = 204,
                    .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                                {"Access-Control-Allow-Headers",
                                 wanted ? *wanted : "Authorization, Content-Type"},
                                {"Access-Control-Max-Age", "600"}}};
  }

  std::optional<Response> check_key(const Request& request) const {
    if (settings_.api_keys.empty() || is_open(settings_, request.path)) return std::nullopt;
    const std::string* given = find_header(request.headers, "Authorization");
    constexpr std::string_view kScheme = "bearer ";
    bool is_known = false;
    if (given && lower_case(given->substr(0, kScheme.size())) == kScheme) {
      const std::string_view key = std::string_view(*given).substr(kScheme.size());
      // Every key is compared: which one it was takes no other time.
      for (const std::string& known : settings_.api_keys) is_known |= is_same_secret(key, known);
    }
    if (is_known) return std::nullopt;
    Response response =
        refusal(401, "the request needs a key: Authorization: Bearer KEY", "invalid_api_key");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }

  std::string how_to_allow() const {
    const std::string& flag = settings_.allowing_flag;
    return flag.empty() ? "" : ": " + flag + " names those that may ask";
  }

  Response refusal(int status, const std::string& message, const char* code) const {
    if (settings_.refusal) return settings_.refusal(status, message, code);
    return {.status = status, .headers = {{"Content-Type", "text/plain"}}, .body = message};
  }

  AccessSettings settings_;
};

}  // namespace

bool is_same_secret(std::string_view given, std::string_view known) {
  unsigned difference = given.size() == known.size() ? 0 : 1;
  for (size_t i = 0; i < known.size(); ++i) {
    const char c = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(c) ^ static_cast<unsigned char>(known[i]);
  }
  volatile unsigned result = difference;
  return result == 0;
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return host == "::1" || lower_case(host) == "localhost";
}

void add_guards(const AccessSettings& settings, Router* router) {
  const auto guard = std::make_shared<const AccessGuard>(settings);
  router->add_guard([guard](const Request& request, Headers* answer_headers) {
    return guard->ask(request, answer_headers);
  });
}

}  // namespace danlu::http
