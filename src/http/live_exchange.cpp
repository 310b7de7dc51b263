#include "http/live_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <utility>

#include "base/clock.h"

namespace danlu::http {
namespace {

/// nginx's number for a client that went before its answer was complete.
constexpr int kClientLeft = 499;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday], parts.tm_mday,
                     kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                     parts.tm_sec);
}

/// A handler's words become no header of their own.
void put_header(std::string* bytes, std::string_view name, std::string_view value) {
  const auto put = [&](std::string_view text) {
    for (const char c : text) {
      if (static_cast<unsigned char>(c) >= ' ' && c != '\x7f') *bytes += c;
    }
  };
  put(name);
  *bytes += ": ";
  put(value);
  *bytes += "\r\n";
}

std::string head_bytes(int status, const Headers& headers, const Headers& more,
                       const AnswerForm& form) {
  std::string bytes = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  put_header(&bytes, "Date", date_now());
  for (const Headers* list : {&headers, &more}) {
    for (const auto& [name, value] : *list) put_header(&bytes, name, value);
  }
  if (!form.keeps_alive) put_header(&bytes, "Connection", "close");
  return bytes;
}

}  // namespace

std::string answer_bytes(const Response& response, const Headers& more, const AnswerForm& form) {
  std::string bytes = head_bytes(response.status, response.headers, more, form);
  if (response.status != 204 && response.status != 304)
    put_header(&bytes, "Content-Length", std::to_string(response.body.size()));
  bytes += "\r\n";
  if (!form.is_head && response.status != 204 && response.status != 304) bytes += response.body;
  return bytes;
}

LiveExchange::LiveExchange(std::shared_ptr<Connection> connection, Request request, Headers headers,
                           AnswerForm form, double begun_s)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      form_(form),
      begun_s_(begun_s),
      headers_(std::move(headers)) {}

LiveExchange::~LiveExchange() {
  try {
    if (phase_ == Phase::kUnanswered)
      respond(connection_->router().error(500, "the request was not answered"));
    if (phase_ == Phase::kStreaming) connection_->post_cut();
  } catch (const std::bad_alloc&) {  // the client waits until it gives up; others are answered
  }
}

void LiveExchange::note(int status) const {
  const auto& listener = connection_->settings().on_answer;
  if (listener) listener({request_, status, steady_now_s() - begun_s_, headers_});
}

bool LiveExchange::send(std::string bytes, bool is_last) {
  if (!connection_->add_pending(bytes.size(), /*is_whole=*/false)) return false;
  connection_->post_send(std::move(bytes), is_last);
  return true;
}

void LiveExchange::add_header(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  headers_.emplace_back(std::move(name), std::move(value));
}

void LiveExchange::respond(Response response) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kUnanswered) return;
  std::string bytes = answer_bytes(response, headers_, form_);
  phase_ = Phase::kAnswered;
  note(response.status);
  connection_->add_pending(bytes.size(), /*is_whole=*/true);
  connection_->post_send(std::move(bytes), true);
}

void LiveExchange::respond_with(std::function<Response()> make) {
  if (!is_open()) return;
  connection_->post_work([self = shared_from_this(), make = std::move(make)] {
    try {
      self->respond(make());
    } catch (...) {
      self->respond(self->connection_->router().error(500, "an internal error"));
    }
  });
}

void LiveExchange::begin_stream(int status, Headers headers) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kUnanswered) return;
  phase_ = Phase::kStreaming;
  stream_status_ = status;
  std::string bytes = head_bytes(status, headers, headers_, form_);
  if (!form_.is_old) put_header(&bytes, "Transfer-Encoding", "chunked");
  bytes += "\r\n";
  const bool has_events = std::any_of(headers.begin(), headers.end(), [](const auto& header) {
    return header.first == "Content-Type" && header.second.starts_with("text/event-stream");
  });
  // First, so that a client that is done by then is known to take comments.
  if (has_events && !form_.is_head) connection_->post_beats();
  send(std::move(bytes), false);
}

bool LiveExchange::write(std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming || connection_->is_cut()) return false;
  if (bytes.empty() || form_.is_head) return true;
  if (!form_.is_old) bytes = fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n";
  return send(std::move(bytes), false);
}

void LiveExchange::end() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStreaming) return;
  phase_ = Phase::kAnswered;
  note(stream_status_);
  send(form_.is_old || form_.is_head ? "" : "0\r\n\r\n", true);
}

bool LiveExchange::is_open() const {
  const std::lock_guard lock(mutex_);
  return (phase_ == Phase::kUnanswered || phase_ == Phase::kStreaming) && !connection_->is_cut();
}

void LiveExchange::on_close(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kAnswered) return;
    if (phase_ != Phase::kClosed) {
      on_close_ = std::move(callback);
      return;
    }
  }
  if (callback) callback();
}

void LiveExchange::close() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kClosed || phase_ == Phase::kAnswered) return;
    phase_ = Phase::kClosed;
    note(kClientLeft);
    callback = std::move(on_close_);
  }
  if (callback) callback();
}

}  // namespace danlu::http
