// http/message.h: a request and its answer, as plain data.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danlu::http {

/// In the order of the wire; names as they were written.
using Headers = std::vector<std::pair<std::string, std::string>>;

/// The first of that name, whose case does not matter; nullptr if there is none.
const std::string* find_header(const Headers& headers, std::string_view name);

struct Request {
  std::string method;  ///< "GET", "POST", …
  std::string path;    ///< decoded, begins with '/', without "." and ".." parts, NUL and '\'
  std::vector<std::pair<std::string, std::string>> query = {};  ///< decoded, in order
  Headers headers = {};
  std::string body = {};
  std::vector<std::string> places = {};  ///< what the places of the route's pattern matched
  std::string peer = {};                 ///< address of the client
  bool is_encrypted = false;

  /// The first of that name; empty if there is none.
  std::string_view query_value(std::string_view name) const;
};

/// Content-Length, Date, Connection and the like are the server's; Content-Type is the handler's.
struct Response {
  int status = 200;
  Headers headers = {};
  std::string body = {};
};

/// "Not Found"; "" for a status without a name.
std::string_view reason_of(int status);

/// Takes a request's target apart. false: it is no path of this server (not absolute, a broken
/// escape, a part "..", a NUL).
bool read_target(std::string_view target, std::string* path,
                 std::vector<std::pair<std::string, std::string>>* query);

}  // namespace danlu::http
