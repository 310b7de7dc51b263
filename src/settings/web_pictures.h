// settings/web_pictures.h: pictures of rows that lie on the web, from the hosts a user allows.
#pragma once
#include <string>
#include <vector>

namespace danlu::settings {

/// The file at `url`. Its host, and that of every redirect, must be one of `domains` or below one.
/// Errors: UsageError (a host that is not allowed); IoError (no answer, another status than 200,
/// more than 128 MiB); DeviceError as hub::make_transport. Thread-safe.
std::string fetch_web_picture(const std::string& url, const std::vector<std::string>& domains);

/// "example.org" of https://user@Example.org:8443/a.png; empty: no http or https URL.
std::string host_of_url(const std::string& url);
bool is_allowed_host(const std::string& host, const std::vector<std::string>& domains);

}  // namespace danlu::settings
