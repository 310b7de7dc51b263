#include "settings/web_pictures.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/lower_case.h"
#include "hub/transport.h"

namespace danlu::settings {
namespace {

constexpr size_t kMostBytes = size_t{128} << 20;
constexpr int kMostRedirects = 5;

[[noreturn]] void fail_to_fetch(const std::string& url, const std::string& why) {
  throw IoError(tr("{}: cannot be fetched: {}", url, why),
                tr("the same command goes on from here; or put the pictures on disk"));
}

/// One exchange; the target of a redirect, or empty once `body` holds the file.
std::string fetch_once(hub::Transport& transport, const std::string& url, std::string* body) {
  hub::Head head;
  bool is_too_large = false;
  body->clear();
  const hub::Exchange exchange =
      transport.send({.url = url}, {.on_head =
                                        [&](const hub::Head& got) {
                                          head = got;
                                          return true;
                                        },
                                    .on_data =
                                        [&](std::string_view bytes) {
                                          is_too_large = body->size() + bytes.size() > kMostBytes;
                                          if (!is_too_large) body->append(bytes);
                                          return !is_too_large;
                                        },
                                    .should_stop = [] { return pending_interrupt() != 0; }});
  if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
  if (is_too_large) fail_to_fetch(url, tr("more than {} MiB", kMostBytes >> 20));
  if (exchange.outcome != hub::Outcome::kDone) fail_to_fetch(url, exchange.failure);
  if (head.status >= 300 && head.status < 400 && !head.header("location").empty())
    return transport.resolve(url, head.header("location"));
  if (head.status != 200) fail_to_fetch(url, tr("status {}", head.status));
  return {};
}

}  // namespace

std::string host_of_url(const std::string& url) {
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return {};
  }
  rest = rest.substr(0, rest.find_first_of("/?#\\"));
  if (const size_t at = rest.rfind('@'); at != rest.npos) rest.remove_prefix(at + 1);
  if (!rest.starts_with('[')) rest = rest.substr(0, rest.find(':'));
  return lower_case(rest);
}

bool is_allowed_host(const std::string& host, const std::vector<std::string>& domains) {
  return !host.empty() && std::any_of(domains.begin(), domains.end(), [&](const auto& domain) {
    const std::string wanted = lower_case(domain);
    return host == wanted || (!wanted.empty() && host.ends_with("." + wanted));
  });
}

std::string fetch_web_picture(const std::string& url, const std::vector<std::string>& domains) {
  thread_local const std::unique_ptr<hub::Transport> transport = hub::make_transport();
  std::string at = url, body;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    const std::string host = host_of_url(at);
    if (!is_allowed_host(host, domains)) {
      throw UsageError(tr("{}: {} is not among --allow_media_domains", url, host),
                       tr("add it, or put the pictures on disk"));
    }
    at = fetch_once(*transport, at, &body);
    if (at.empty()) return body;
  }
  fail_to_fetch(url, tr("more than {} redirects", kMostRedirects));
}

}  // namespace danlu::settings
