// settings/web_pictures.h: pictures of rows that lie on the web, from the hosts a user allows.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace danlu::settings {

/// How long one picture may take, and how large it may be.
struct WebLimits {
  size_t most_bytes = size_t{128} << 20;
  int tries = 4;                 ///< where another one may do better
  double pause_s = 1;            ///< before the second try; twice as long before each later one
  double patience_s = 30;        ///< after which least_rate is demanded
  double least_rate = 16 << 10;  ///< bytes a second, from the first one on
};

/// The file at `url`. Its host, and that of every redirect, must be one of `domains` or below one.
/// Errors: UsageError (a host that is not allowed); DataError (this file is not to be had: a status
/// that says so, too large, too slow, no URL); IoError (no answer, or "later", after several tries:
/// the network or the whole server is away); DeviceError as hub::make_transport; InterruptedError.
/// Thread-safe.
std::string fetch_web_picture(const std::string& url, const std::vector<std::string>& domains,
                              const WebLimits& limits = {});

/// "example.org" of https://user@Example.org:8443/a.png; empty: no http or https URL.
std::string host_of_url(const std::string& url);
bool is_allowed_host(const std::string& host, const std::vector<std::string>& domains);

}  // namespace danlu::settings
