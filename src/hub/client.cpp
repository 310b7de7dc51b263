#include "hub/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace danlu::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxErrorBody = 4096;
constexpr size_t kMaxText = 256u << 20;
/// A hub that asks for more is not waited for: the line is given again later.
constexpr double kLongestWait_s = 300;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool passes(int status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

double retry_after_seconds(const std::string& header) {
  if (header.empty()) return -1;
  if (header.find_first_not_of("0123456789") == std::string::npos && header.size() < 10)
    return std::stod(header);
  std::tm time{};
  if (!::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time)) return -1;
  return std::max(0.0, std::difftime(::timegm(&time), std::time(nullptr)));
}

Client::Client(ClientSettings settings, ShouldStop should_stop)
    : settings_(std::move(settings)),
      should_stop_(std::move(should_stop)),
      transport_(make_transport()) {}

Request Client::request_for(const std::string& url,
                            const std::map<std::string, std::string>& headers, bool is_home) const {
  Request request{.url = url,
                  .connect_timeout_s = std::min(settings_.timeout_s, 10.0),
                  .stall_timeout_s = settings_.timeout_s};
  request.headers = {{"User-Agent", "danlu"}, {"Accept-Encoding", "identity"}};
  for (const auto& [name, value] : headers) request.headers.emplace_back(name, value);
  if (settings_.token.empty() || !is_home) return request;
  request.headers.emplace_back("Authorization", "Bearer " + settings_.token);
  if (settings_.hub == Hub::kModelScope)
    request.headers.emplace_back("Cookie", "m_session_id=" + settings_.token);
  return request;
}

bool Client::get_once(const std::string& first_url,
                      const std::map<std::string, std::string>& headers, const Body& body) {
  const std::string home = transport_->origin(settings_.endpoint);
  std::vector<Head> heads;
  std::string url = first_url;
  while (true) {
    const Request request = request_for(url, headers, transport_->origin(url) == home);
    std::string error_body;
    bool is_answer = false;
    std::exception_ptr thrown;  // through libcurl's C nothing may be thrown
    const auto guarded = [&](const auto& call) {
      try {
        return call();
      } catch (...) {
        thrown = std::current_exception();
        return false;
      }
    };
    const Exchange exchange = transport_->send(
        request, {.on_head =
                      [&](const Head& head) {
                        heads.push_back(head);
                        is_answer = head.status / 100 == 2 || head.status == 416;
                        return !is_answer || guarded([&] { return body.on_head(heads); });
                      },
                  .on_data =
                      [&](std::string_view data) {
                        if (is_answer) return guarded([&] { return body.on_data(data); });
                        error_body += data.substr(
                            0, kMaxErrorBody - std::min(kMaxErrorBody, error_body.size()));
                        return true;
                      },
                  .should_stop = should_stop_});
    if (thrown) std::rethrow_exception(thrown);
    if (exchange.outcome == Outcome::kStopped) return false;
    if (exchange.outcome != Outcome::kDone)
      throw Failure{.is_passing = exchange.outcome == Outcome::kBroken, .words = exchange.failure};
    const Head& head = heads.back();
    if (is_answer) return true;
    if (is_redirect(head.status) && !head.header("location").empty()) {
      const std::string next = transport_->resolve(url, head.header("location"));
      if (next.empty() || static_cast<int>(heads.size()) > kMaxRedirects)
        throw Failure{.status = head.status, .words = "too many redirects, or to no http URL"};
      if (url.starts_with("https:") && !next.starts_with("https:"))
        throw Failure{.status = head.status, .words = "redirected from https to http"};
      url = next;
      continue;
    }
    throw Failure{.status = head.status,
                  .is_passing = passes(head.status),
                  .retry_after_s = retry_after_seconds(head.header("retry-after")),
                  .words = fmt::format("HTTP {}", head.status),
                  .error_code = heads.back().header("x-error-code"),
                  .body = error_body};
  }
}

Client::Text Client::get_text(const std::string& url) {
  for (int tries = 0;; ++tries) {
    Text text;
    try {
      const bool whole = get_once(url, {},
                                  {.on_head =
                                       [&](const std::vector<Head>& heads) {
                                         text.head = heads.back();
                                         return true;
                                       },
                                   .on_data =
                                       [&](std::string_view data) {
                                         text.body += data;
                                         return text.body.size() < kMaxText;
                                       }});
      require_not_interrupted();
      if (!whole || text.head.status == 416)
        throw Failure{.status = text.head.status, .words = "an answer of no use"};
      return text;
    } catch (const Failure& failure) {
      if (!failure.is_passing || tries >= settings_.max_retries) throw;
      wait_before_retry(failure, tries + 1);
    }
  }
}

void Client::wait_before_retry(const Failure& failure, int tries) const {
  double wait_s = std::min(30.0, settings_.backoff_s * std::pow(2.0, tries - 1));
  if (failure.retry_after_s >= 0) wait_s = failure.retry_after_s;
  if (wait_s > kLongestWait_s) throw failure;
  log::info("{}: {}; next try in {:.1f} s", settings_.endpoint, translated_filled(failure.words),
            wait_s);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (std::chrono::steady_clock::now() < end) {
    require_not_interrupted();
    if (should_stop_ && should_stop_()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Client::require_not_interrupted() const {
  if (const int signal = pending_interrupt())
    throw_interrupted(signal, tr("[download] stopped by {}", interrupt_name(signal)),
                      tr("the same line goes on where this one stopped"));
}

void throw_unreachable(const ClientSettings& settings, const std::string& what,
                       const Failure& failure) {
  const bool names_certificate = failure.words.find("certificate") != std::string::npos;
  std::string hint;
  if (failure.status == 429) {
    hint =
        tr("too many requests: wait, give a token (--token), or lower --max-workers; the same "
           "line goes on");
  } else if (names_certificate) {
    hint =
        tr("install ca-certificates, set the clock, or name your proxy's certificate with "
           "SSL_CERT_FILE");
  } else if (settings.hub == Hub::kHuggingFace) {
    hint =
        tr("is there a network, or a proxy to name (https_proxy)? a mirror is chosen with "
           "HF_ENDPOINT=https://HOST, the other hub with USE_MODELSCOPE_HUB=1, or --hub modelscope "
           "of danlu download");
  } else {
    hint =
        tr("is there a network, or a proxy to name (https_proxy)? the other hub is chosen with "
           "USE_HF=1, or --hub hf of danlu download");
  }
  throw CommError(
      tr("[download] {}: {}: {}", settings.endpoint, what, translated_filled(failure.words)), hint);
}

}  // namespace danlu::hub
