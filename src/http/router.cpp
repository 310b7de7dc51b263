#include "http/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace danlu::http {
namespace {

std::vector<std::string> parts_of_path(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<std::vector<std::string>> places_in(const std::vector<std::string>& pattern,
                                                  const std::vector<std::string>& path) {
  std::vector<std::string> places;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == "{*}") {
      std::string rest;
      for (size_t k = i; k < path.size(); ++k) rest += (k > i ? "/" : "") + path[k];
      places.push_back(std::move(rest));
      return places;
    }
    if (i >= path.size()) return std::nullopt;
    if (pattern[i] == "{}") {
      if (path[i].empty()) return std::nullopt;
      places.push_back(path[i]);
    } else if (pattern[i] != path[i]) {
      return std::nullopt;
    }
  }
  if (path.size() != pattern.size()) return std::nullopt;
  return places;
}

}  // namespace

void Router::add(std::string method, std::string pattern, Handler handler, Pace pace) {
  const bool is_known = std::any_of(routes_.begin(), routes_.end(), [&](const Route& route) {
    return route.method == method && route.pattern == pattern;
  });
  if (is_known || pattern.empty() || pattern.front() != '/')
    throw InternalError(fmt::format("[http] no second route, and an absolute one: {}", pattern));
  std::vector<std::string> parts = parts_of_path(pattern);
  routes_.push_back(
      {std::move(method), std::move(pattern), std::move(parts), std::move(handler), pace});
}

void Router::add_guard(Guard guard) { guards_.push_back(std::move(guard)); }

void Router::set_error_body(ErrorBody error_body) { error_body_ = std::move(error_body); }

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  const std::vector<std::string> parts = parts_of_path(path);
  const std::string_view served_by = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes_) {
    auto places = places_in(route.parts, parts);
    if (!places) continue;
    if (route.method == served_by && !match.handler) {
      match.handler = &route.handler;
      match.pace = route.pace;
      match.places = std::move(*places);
    }
    for (const std::string& allowed :
         {route.method, std::string(route.method == "GET" ? "HEAD" : "")}) {
      if (allowed.empty() || match.allow.find(allowed) != std::string::npos) continue;
      match.allow += (match.allow.empty() ? "" : ", ") + allowed;
    }
  }
  return match;
}

std::optional<Response> Router::ask_guards(const Request& request, Headers* answer_headers) const {
  for (const Guard& guard : guards_) {
    if (auto response = guard(request, answer_headers)) return response;
  }
  return std::nullopt;
}

Response Router::error(int status, std::string_view message) const {
  if (error_body_) return error_body_(status, message);
  return {.status = status,
          .headers = {{"Content-Type", "text/plain; charset=utf-8"}},
          .body = std::string(message) + "\n"};
}

}  // namespace danlu::http
