// http/router.h: which handler answers which request.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"

namespace danlu::http {

/// Runs on a thread for handlers, so it may take its time; an answer that takes longer is given
/// from elsewhere: the exchange may be kept. What it throws becomes a 500.
using Handler = std::function<void(const ExchangePtr&)>;

/// kPrompt: the handler answers at once, and is not queued behind slow ones. kSlow: it reads files
/// or waits for others that do, and holds up none but its like.
enum class Pace { kAny, kPrompt, kSlow };

/// Looks at a request before its body is read, on a thread that must not wait. A response ends it
/// there. `answer_headers` go with whatever answer follows.
using Guard = std::function<std::optional<Response>(const Request&, Headers* answer_headers)>;

/// A body for an answer that the server gives itself (400, 404, 405, 408, 413, 431, 500, 503).
/// `message` is a sentence in English.
using ErrorBody = std::function<Response(int status, std::string_view message)>;

/// Filled before the server starts, and not changed afterwards.
class Router {
 public:
  /// pattern: "/v1/models/{}", where {} is one part of a path, not empty; a last {*} is all that is
  /// left, "" too. Of several patterns that match the one that was added first counts. HEAD is
  /// answered by GET's handler, without the body. Errors: InternalError for a pattern that does not
  /// begin with '/', or that was added already.
  void add(std::string method, std::string pattern, Handler handler, Pace pace = Pace::kAny);
  /// Guards are asked in the order in which they were added.
  void add_guard(Guard guard);
  /// Without one, text/plain.
  void set_error_body(ErrorBody error_body);

  struct Match {
    const Handler* handler = nullptr;  ///< null: none
    Pace pace = Pace::kAny;
    std::vector<std::string> places;
    std::string allow;  ///< the path's methods, "GET, HEAD"; empty: no pattern has the path
  };
  Match find(std::string_view method, std::string_view path) const;
  std::optional<Response> ask_guards(const Request& request, Headers* answer_headers) const;
  Response error(int status, std::string_view message) const;

 private:
  struct Route {
    std::string method, pattern;
    std::vector<std::string> parts;
    Handler handler;
    Pace pace;
  };
  std::vector<Route> routes_;
  std::vector<Guard> guards_;
  ErrorBody error_body_;
};

}  // namespace danlu::http
