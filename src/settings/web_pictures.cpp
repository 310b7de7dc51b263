#include "settings/web_pictures.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "hub/transport.h"

namespace danlu::settings {
namespace {

constexpr int kMostRedirects = 5;

[[noreturn]] void refuse_picture(const std::string& url, const std::string& why) {
  throw DataError(tr("{}: {}", url, why));
}

/// What one exchange brought.
struct WebAnswer {
  std::string body;
  std::string redirect;         ///< the URL to ask next; empty: none
  std::string failure;          ///< what another try may change; empty: nothing failed
  bool is_server_away = false;  ///< of a failure: not of this file alone
};

/// What a status other than 200 means.
void judge_status(const hub::Head& head, const std::string& url, hub::Transport& transport,
                  WebAnswer* answer) {
  const int status = head.status;
  if (status >= 300 && status < 400 && !head.header("location").empty()) {
    answer->redirect = transport.resolve(url, head.header("location"));
    if (answer->redirect.empty())
      refuse_picture(url, tr("redirected to {}, which is no http URL", head.header("location")));
    return;
  }
  if (status == 200) return;
  const bool is_later = status == 408 || status == 429 || status == 503;
  if (!is_later && status < 500) refuse_picture(url, tr("status {}", status));
  answer->failure = tr("status {}", status);
  answer->is_server_away = is_later;
}

WebAnswer ask_once(hub::Transport& transport, const std::string& url, const WebLimits& limits) {
  using Clock = std::chrono::steady_clock;
  hub::Head head;
  WebAnswer answer;
  bool is_too_large = false, is_too_slow = false;
  const auto begin = Clock::now();
  const auto waits_too_long = [&] {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    // Without a byte it stands still, which has a limit of its own.
    is_too_slow |= seconds > limits.patience_s && !answer.body.empty() &&
                   static_cast<double>(answer.body.size()) < limits.least_rate * seconds;
    return is_too_slow;
  };
  const hub::Exchange exchange = transport.send(
      {.url = url}, {.on_head =
                         [&](const hub::Head& got) {
                           head = got;
                           return true;
                         },
                     .on_data =
                         [&](std::string_view bytes) {
                           is_too_large = answer.body.size() + bytes.size() > limits.most_bytes;
                           if (!is_too_large) answer.body.append(bytes);
                           return !is_too_large && !waits_too_long();
                         },
                     .should_stop = [&] { return pending_interrupt() != 0 || waits_too_long(); }});
  if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
  if (is_too_large) refuse_picture(url, tr("more than {} MiB", limits.most_bytes >> 20));
  if (is_too_slow) refuse_picture(url, tr("slower than {:.0f} bytes a second", limits.least_rate));
  if (exchange.outcome == hub::Outcome::kRefused)
    refuse_picture(url, translated_filled(exchange.failure));
  if (exchange.outcome == hub::Outcome::kDone) {
    judge_status(head, url, transport, &answer);
  } else {
    answer.failure = translated_filled(exchange.failure);
    answer.is_server_away = head.status == 0;  // else it began to send the file
  }
  return answer;
}

void pause_before_try(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// An answer that is no failure.
WebAnswer ask(hub::Transport& transport, const std::string& url, const WebLimits& limits) {
  double pause_s = limits.pause_s;
  for (int tries = 1;; ++tries, pause_s *= 2) {
    WebAnswer answer = ask_once(transport, url, limits);
    if (answer.failure.empty()) return answer;
    if (tries < limits.tries) {
      log::info("{}: {}; next try in {:.1f} s", url, answer.failure, pause_s);
      pause_before_try(pause_s);
      continue;
    }
    if (!answer.is_server_away) refuse_picture(url, answer.failure);
    throw IoError(tr("{}: cannot be fetched: {}", url, answer.failure),
                  tr("the same command goes on from here; or put the pictures on disk"));
  }
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

std::string fetch_web_picture(const std::string& url, const std::vector<std::string>& domains,
                              const WebLimits& limits) {
  thread_local const std::unique_ptr<hub::Transport> transport = hub::make_transport();
  std::string at = url;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    const std::string host = host_of_url(at);
    if (!is_allowed_host(host, domains)) {
      throw UsageError(tr("{}: {} is not among --allow_media_domains", url, host),
                       tr("add it, or put the pictures on disk"));
    }
    WebAnswer answer = ask(*transport, at, limits);
    if (answer.redirect.empty()) return std::move(answer.body);
    at = std::move(answer.redirect);
  }
  refuse_picture(url, tr("more than {} redirects", kMostRedirects));
}

}  // namespace danlu::settings
