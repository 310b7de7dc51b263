#include "http/message.h"

#include <algorithm>
#include <array>
#include <optional>

namespace danlu::http {
namespace {

char lower_of(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return lower_of(x) == lower_of(y);
         });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

/// Parts are compared after they were decoded: an escaped dot is a dot.
bool is_plain_path(std::string_view path) {
  if (path.empty() || path.front() != '/') return false;
  if (path.find('\0') != path.npos || path.find('\\') != path.npos) return false;
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

struct NamedStatus {
  int status;
  std::string_view reason;
};

constexpr std::array kStatuses = {NamedStatus{100, "Continue"},
                                  NamedStatus{200, "OK"},
                                  NamedStatus{201, "Created"},
                                  NamedStatus{202, "Accepted"},
                                  NamedStatus{204, "No Content"},
                                  NamedStatus{301, "Moved Permanently"},
                                  NamedStatus{302, "Found"},
                                  NamedStatus{303, "See Other"},
                                  NamedStatus{304, "Not Modified"},
                                  NamedStatus{307, "Temporary Redirect"},
                                  NamedStatus{308, "Permanent Redirect"},
                                  NamedStatus{400, "Bad Request"},
                                  NamedStatus{401, "Unauthorized"},
                                  NamedStatus{403, "Forbidden"},
                                  NamedStatus{404, "Not Found"},
                                  NamedStatus{405, "Method Not Allowed"},
                                  NamedStatus{408, "Request Timeout"},
                                  NamedStatus{409, "Conflict"},
                                  NamedStatus{413, "Content Too Large"},
                                  NamedStatus{415, "Unsupported Media Type"},
                                  NamedStatus{422, "Unprocessable Content"},
                                  NamedStatus{429, "Too Many Requests"},
                                  NamedStatus{431, "Request Header Fields Too Large"},
                                  NamedStatus{500, "Internal Server Error"},
                                  NamedStatus{501, "Not Implemented"},
                                  NamedStatus{503, "Service Unavailable"}};

}  // namespace

const std::string* find_header(const Headers& headers, std::string_view name) {
  for (const auto& [known, value] : headers) {
    if (is_same_name(known, name)) return &value;
  }
  return nullptr;
}

std::string_view Request::query_value(std::string_view name) const {
  for (const auto& [known, value] : query) {
    if (known == name) return value;
  }
  return {};
}

std::string_view reason_of(int status) {
  for (const NamedStatus& known : kStatuses) {
    if (known.status == status) return known.reason;
  }
  return {};
}

bool read_target(std::string_view target, std::string* path,
                 std::vector<std::pair<std::string, std::string>>* query) {
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  const auto decoded = percent_decoded(target.substr(0, question), /*plus_is_space=*/false);
  if (!decoded || !is_plain_path(*decoded)) return false;
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string_view rest = question == target.npos ? "" : target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = percent_decoded(pair.substr(0, equals), true);
    auto value = percent_decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return false;
    pairs.emplace_back(std::move(*name), std::move(*value));
  }
  *path = *decoded;
  *query = std::move(pairs);
  return true;
}

}  // namespace danlu::http
