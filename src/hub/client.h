// hub/client.h: requests to a hub: its token, redirects, and tries that are made again.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hub/repository.h"
#include "hub/transport.h"

namespace danlu::hub {

struct ClientSettings {
  Hub hub = Hub::kHuggingFace;
  std::string endpoint;  ///< "https://host", without a last slash
  std::string token;     ///< empty: none
  int max_retries = 5;   ///< of one request; a file that grows between tries begins to count anew
  double timeout_s = 30;
  double backoff_s = 1;  ///< before the second try; doubled for each that follows, up to 30 s
};

/// A request that ended without an answer to use. Only for this room: its callers know what was
/// asked, and say so.
struct Failure {
  int status = 0;           ///< 0: none came
  bool is_passing = false;  ///< another try may help
  double retry_after_s = -1;
  std::string words = {};       ///< libcurl's, or the status
  std::string error_code = {};  ///< Hugging Face's X-Error-Code
  std::string body = {};        ///< the first 4 kB
};

class Client {
 public:
  /// Called between bytes and while waiting: true ends what is under way.
  using ShouldStop = std::function<bool()>;
  Client(ClientSettings settings, ShouldStop should_stop);

  /// What is done with an answer of status 2xx or 416.
  struct Body {
    /// The heads of the redirects on the way, then the answer's. False: nothing more is wanted.
    std::function<bool(const std::vector<Head>& heads)> on_head;
    std::function<bool(std::string_view)> on_data;
  };
  /// One try. The token goes to the endpoint's own host only. Throws Failure for everything but
  /// 2xx and 416, IoError and its like as the sinks do. False: a sink wanted no more.
  bool get_once(const std::string& url, const std::map<std::string, std::string>& headers,
                const Body& body);

  /// An answer in memory, of at most 256 MB, tried again as the settings say.
  struct Text {
    Head head;
    std::string body;
  };
  Text get_text(const std::string& url);

  /// Waits before try number `tries` (1: the second), as `failure` asks. Errors: as
  /// throw_interrupted if a signal comes.
  void wait_before_retry(const Failure& failure, int tries) const;
  const ClientSettings& settings() const { return settings_; }
  /// Errors: as throw_interrupted, if a signal has come.
  void require_not_interrupted() const;

 private:
  /// `is_home`: the token may go there.
  Request request_for(const std::string& url, const std::map<std::string, std::string>& headers,
                      bool is_home) const;
  ClientSettings settings_;
  ShouldStop should_stop_;
  std::unique_ptr<Transport> transport_;
};

/// Seconds, or the time until an HTTP date; -1 if it is neither.
double retry_after_seconds(const std::string& header);

/// `failure` as an error: what could not be done, in the words of `what`. Errors: CommError,
/// always.
[[noreturn]] void throw_unreachable(const ClientSettings& settings, const std::string& what,
                                    const Failure& failure);

}  // namespace danlu::hub
