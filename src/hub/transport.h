// hub/transport.h: one HTTP exchange and the digests of files, as libdanlu_curl.so does them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danlu::hub {

struct Request {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers = {};
  double connect_timeout_s = 10;
  double stall_timeout_s = 30;  ///< without a byte for so long it is given up
};

/// What the server said before the body.
struct Head {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case
  /// Empty if there is none.
  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

enum class Outcome {
  kDone,
  kStopped,  ///< by a sink or by should_stop
  kBroken,   ///< no connection, or one that was cut or stood still: worth another try
  kRefused,  ///< what another try does not change: a certificate, a URL, a proxy's refusal
};

struct Exchange {
  Outcome outcome = Outcome::kDone;
  std::string failure;  ///< libcurl's words; English
};

struct Sinks {
  std::function<bool(const Head&)> on_head;       ///< false stops
  std::function<bool(std::string_view)> on_data;  ///< false stops
  std::function<bool()> should_stop = {};         ///< asked at least once a second
};

/// One connection at a time, kept open between exchanges with one host. Follows no redirect.
/// Proxies by the variables that curl reads (https_proxy, no_proxy, …). One thread at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Exchange send(const Request& request, const Sinks& sinks) = 0;
  /// `location` of a redirect, made absolute. Empty: it is no http or https URL.
  virtual std::string resolve(const std::string& base, const std::string& location) const = 0;
  /// "https://host:443"; empty as resolve.
  virtual std::string origin(const std::string& url) const = 0;
};

/// SHA-1 or SHA-256 of what update was given.
class Digest {
 public:
  virtual ~Digest() = default;
  virtual void update(std::string_view bytes) = 0;
  /// Lower case; ends it.
  virtual std::string hex() = 0;
};

/// These two open libdanlu_curl.so at the first call, so that commands without a network need no
/// TLS library. Errors: DeviceError if it cannot be loaded.
std::unique_ptr<Transport> make_transport();
/// `name`: "sha1" or "sha256".
std::unique_ptr<Digest> make_digest(const char* name);

/// Each byte that may not stand in a path as %XX; "/" stays if `keep_slashes`.
std::string url_encoded(std::string_view text, bool keep_slashes);

}  // namespace danlu::hub
