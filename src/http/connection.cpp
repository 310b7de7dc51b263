#include "http/connection.h"

#include <malloc.h>

#include <chrono>
#include <exception>

#include "base/clock.h"
#include "http/live_exchange.h"

namespace danlu::http {
namespace {

constexpr double kLingerS = 2;
constexpr const char* kComment = ":\n\n";  ///< of a stream of events

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

constexpr uint64_t kLargeBody = uint64_t{1} << 20;
/// Lengths of the longest body that large bodies may have together.
constexpr uint64_t kLargeBodies = 16;

/// An answer for which there is no memory is none; the exchange's end tells the client.
void run_handler(const Handler& handler, const ExchangePtr& exchange, const Router& router) {
  try {
    handler(exchange);
  } catch (...) {
    try {
      exchange->respond(router.error(500, "an internal error"));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    }
  }
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerParts> parts, asio::ip::tcp::socket socket,
                       asio::ssl::context* tls)
    : parts_(std::move(parts)),
      wire_(std::move(socket), tls),
      reader_(parts_->settings.max_header_bytes, parts_->settings.max_body_bytes),
      reading_timer_(wire_.socket().get_executor()),
      writing_timer_(wire_.socket().get_executor()),
      beat_timer_(wire_.socket().get_executor()) {}

void Connection::start() {
  error_code ignored;
  wire_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  if (!wire_.is_encrypted()) return go_on();
  await(Waits::kEnd, parts_->settings.header_timeout_s);
  wire_.handshake([self = shared_from_this()](const error_code& error) {
    if (self->is_over_) return;
    if (error) return self->cut();
    self->go_on();
  });
}

void Connection::post_start() {
  asio::post(wire_.socket().get_executor(), [self = shared_from_this()] { self->start(); });
}

void Connection::turn_away() {
  Response response = parts_->router.error(503, "the server has too many connections");
  response.headers.emplace_back("Retry-After", "1");
  const std::string bytes = answer_bytes(response, {}, {});
  error_code ignored;
  wire_.socket().non_blocking(true, ignored);
  if (!wire_.is_encrypted()) wire_.socket().write_some(asio::buffer(bytes), ignored);
  is_over_ = is_cut_ = true;
  wire_.close();
}

// --- reading ----------------------------------------------------------------------------------

void Connection::await(Waits what, double seconds) {
  if (waits_ == what) return;
  waits_ = what;
  reading_timer_.cancel();
  if (what == Waits::kNothing) return;
  reading_timer_.expires_after(duration_of(seconds));
  reading_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    const bool is_now = self->reading_timer_.expiry() <= std::chrono::steady_clock::now();
    if (!error && is_now && !self->is_over_) self->on_reading_deadline();
  });
}

void Connection::on_reading_deadline() {
  if (waits_ == Waits::kNothing) return;
  if (waits_ == Waits::kRequest || waits_ == Waits::kEnd) return cut();
  refuse(parts_->router.error(408, "the request did not arrive in time"));
}

void Connection::read_more() {
  if (is_reading_ || is_over_) return;
  if (client_is_done_) {
    if (phase_ != Phase::kAnswering) cut();
    return;
  }
  // Requests that come before their time wait in the system.
  if (phase_ == Phase::kAnswering && reader_.buffered_bytes() >= input_.size()) return;
  is_reading_ = true;
  wire_.read_some(asio::buffer(input_),
                  [self = shared_from_this()](const error_code& error, size_t size) {
                    self->on_read(error, size);
                  });
}

void Connection::on_read(const error_code& error, size_t size) {
  is_reading_ = false;
  if (is_over_) return;
  const bool may_be_half =
      phase_ == Phase::kAnswering && !wire_.is_encrypted() && !reader_.is_old();
  if (error == asio::error::eof && may_be_half) return ask_who_sends_no_more();
  if (error) return cut();
  if (phase_ == Phase::kLingering) return read_more();
  reader_.append({input_.data(), size});
  if (phase_ == Phase::kAnswering) return read_more();
  go_on();
}

// Whoever has closed its side may wait for the answer, or be gone: both look alike until something
// is sent, which the system of one that is gone answers with a reset. Clients pass over a 100 and,
// in a stream of events, over a comment; in other streams there is nothing to ask by.
void Connection::ask_who_sends_no_more() {
  if (answer_has_begun_ && !last_is_queued_ && !has_beats_) return cut();
  client_is_done_ = true;
  wire_.socket().async_wait(asio::ip::tcp::socket::wait_error,
                            [self = shared_from_this()](const error_code& error) {
                              if (!error && !self->is_over_) self->cut();
                            });
  if (!answer_has_begun_) return send_continue();
  if (const auto exchange = exchange_.lock(); exchange && has_beats_) exchange->write(kComment);
}

void Connection::send_continue() {
  std::string bytes = "HTTP/1.1 100 Continue\r\n\r\n";
  add_pending(bytes.size(), /*is_whole=*/true);
  outgoing_ += bytes;
  write_more();
}

void Connection::go_on() {
  using State = RequestReader::State;
  const Settings& settings = parts_->settings;
  switch (reader_.state()) {
    case State::kHead:
      if (reader_.has_begun()) {
        await(Waits::kHead, settings.header_timeout_s);
      } else {
        if (parts_->is_draining) return cut();
        await(Waits::kRequest, settings.keep_alive_timeout_s);
      }
      return read_more();
    case State::kHeadRead:
      return on_head();
    case State::kBody:
      return read_more();
    case State::kRead:
      return dispatch();
    case State::kFailed:
      return refuse(parts_->router.error(reader_.status(), reader_.problem()));
  }
}

void Connection::on_head() {
  large_body_.reset();
  request_ = reader_.take_head();
  error_code ignored;
  request_.peer = wire_.socket().remote_endpoint(ignored).address().to_string();
  request_.is_encrypted = wire_.is_encrypted();
  keeps_alive_ = reader_.keeps_alive();
  answer_headers_.clear();
  begun_s_ = steady_now_s();
  if (!pass_guards() || !find_handler()) return;
  if (!holds_body(reader_.body_length())) return refuse_full();
  if (reader_.expects_continue()) send_continue();
  await(Waits::kBody, parts_->settings.body_timeout_s);
  reader_.go_on();
  go_on();
}

bool Connection::pass_guards() {
  try {
    const auto refusal = parts_->router.ask_guards(request_, &answer_headers_);
    if (!refusal) return true;
    answer(*refusal);
  } catch (...) {
    answer(parts_->router.error(500, "an internal error"));
  }
  return false;
}

bool Connection::find_handler() {
  Router::Match match = parts_->router.find(request_.method, request_.path);
  handler_ = match.handler;
  pace_ = match.pace;
  request_.places = std::move(match.places);
  if (handler_) return true;
  Response response;
  if (match.allow.empty()) {
    response = parts_->router.error(404, "there is nothing under this path");
  } else if (request_.method == "OPTIONS") {
    response.status = 204;
  } else {
    response = parts_->router.error(405, "this path has other methods: " + match.allow);
  }
  if (!match.allow.empty()) response.headers.emplace_back("Allow", match.allow);
  answer(response);
  return false;
}

void Connection::dispatch() {
  if (parts_->is_draining) {
    Response response = parts_->router.error(503, "the server is ending");
    response.headers.emplace_back("Retry-After", "1");
    return refuse(response);
  }
  await(Waits::kNothing, 0);
  phase_ = Phase::kAnswering;
  request_.body = reader_.take_body();
  if (!large_body_ && !holds_body(request_.body.size())) return refuse_full();
  const AnswerForm form = {.is_old = reader_.is_old(),
                           .is_head = request_.method == "HEAD",
                           .keeps_alive = keeps_alive_};
  auto exchange = std::make_shared<LiveExchange>(shared_from_this(), std::move(request_),
                                                 std::move(answer_headers_), form, begun_s_);
  exchange_ = exchange;
  counts_exchange_ = true;
  ++parts_->num_exchanges;
  hand_over(std::move(exchange));
  read_more();  // a client that goes is seen
}

void Connection::hand_over(std::shared_ptr<LiveExchange> exchange) {
  const bool is_large = large_body_ != nullptr;
  asio::thread_pool& pool =
      is_large && pace_ == Pace::kAny ? parts_->large_handlers : parts_->handlers_of(pace_);
  asio::post(pool, [handler = handler_, exchange = std::move(exchange), parts = parts_,
                    body = std::move(large_body_)]() mutable {
    const bool had_large = body != nullptr;
    run_handler(*handler, exchange, parts->router);
    exchange.reset();
    body.reset();
    if (had_large)
      ::malloc_trim(0);  // what it was read into is small pieces, which libc would keep
  });
}

bool Connection::holds_body(uint64_t bytes) {
  if (bytes < kLargeBody) return true;
  const uint64_t most = kLargeBodies * parts_->settings.max_body_bytes;
  if (parts_->large_bytes.fetch_add(bytes) + bytes > most) {
    parts_->large_bytes -= bytes;
    return false;
  }
  large_body_ = std::shared_ptr<void>(
      parts_.get(), [parts = parts_, bytes](void*) { parts->large_bytes -= bytes; });
  return true;
}

void Connection::refuse_full() {
  Response response =
      parts_->router.error(503, "too many large requests are read: try again later");
  response.headers.emplace_back("Retry-After", "1");
  refuse(response);
}

// --- answering --------------------------------------------------------------------------------

void Connection::answer(const Response& response) {
  // What would come of its body is not wanted.
  if (reader_.has_body()) return refuse(response);
  await(Waits::kNothing, 0);
  phase_ = Phase::kAnswering;
  reader_.go_on();
  note(response.status);
  std::string bytes = answer_bytes(response, answer_headers_,
                                   {.is_old = reader_.is_old(),
                                    .is_head = request_.method == "HEAD",
                                    .keeps_alive = keeps_alive_});
  add_pending(bytes.size(), /*is_whole=*/true);
  send(std::move(bytes), /*is_last=*/true);
  read_more();
}

void Connection::refuse(const Response& response) {
  await(Waits::kNothing, 0);
  phase_ = Phase::kAnswering;
  keeps_alive_ = false;
  note(response.status);
  std::string bytes =
      answer_bytes(response, answer_headers_,
                   {.is_old = false, .is_head = request_.method == "HEAD", .keeps_alive = false});
  add_pending(bytes.size(), /*is_whole=*/true);
  send(std::move(bytes), /*is_last=*/true);
}

void Connection::note(int status) const {
  const auto& listener = parts_->settings.on_answer;
  if (listener)
    listener({request_, status, begun_s_ > 0 ? steady_now_s() - begun_s_ : 0, answer_headers_});
}

bool Connection::add_pending(size_t size, bool is_whole) {
  if (is_cut_) return false;
  pending_bytes_ += size;
  if (is_whole || pending_bytes_ <= parts_->settings.max_output_bytes) return true;
  post_cut();
  return false;
}

void Connection::post_send(std::string bytes, bool is_last) {
  if (is_cut_) return;
  asio::post(wire_.socket().get_executor(),
             [self = shared_from_this(), bytes = std::move(bytes), is_last]() mutable {
               self->send(std::move(bytes), is_last);
             });
}

void Connection::post_cut() {
  if (is_cut_.exchange(true)) return;
  asio::post(wire_.socket().get_executor(), [self = shared_from_this()] { self->cut(); });
}

void Connection::post_work(std::function<void()> work) {
  asio::post(parts_->handlers, [work = std::move(work), parts = parts_] { work(); });
}

void Connection::post_beats() {
  if (is_cut_ || parts_->settings.beat_s <= 0) return;
  asio::post(wire_.socket().get_executor(), [self = shared_from_this()] {
    self->sent_at_ = std::chrono::steady_clock::now();
    self->has_beats_ = true;
    self->await_beat(self->exchange_);
  });
}

void Connection::await_beat(std::weak_ptr<LiveExchange> of) {
  if (is_over_) return;
  beat_timer_.expires_at(sent_at_ + duration_of(parts_->settings.beat_s));
  beat_timer_.async_wait([self = shared_from_this(), of](const error_code& error) {
    const auto exchange = of.lock();
    if (error || self->is_over_ || !exchange) return;
    const auto now = std::chrono::steady_clock::now();
    if (self->sent_at_ + duration_of(self->parts_->settings.beat_s) <= now) {
      self->sent_at_ = now;
      if (!exchange->write(kComment)) return;  // it has ended
    }
    self->await_beat(of);
  });
}

void Connection::post_close_if_idle() {
  if (is_cut_) return;
  asio::post(wire_.socket().get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::kReading && !self->reader_.has_begun()) self->cut();
  });
}

void Connection::send(std::string bytes, bool is_last) {
  if (is_over_) return;
  answer_has_begun_ = true;
  sent_at_ = std::chrono::steady_clock::now();
  if (outgoing_.empty()) {
    outgoing_ = std::move(bytes);
  } else {
    outgoing_ += bytes;
  }
  last_is_queued_ = last_is_queued_ || is_last;
  write_more();
}

void Connection::write_more() {
  if (is_writing_ || is_over_) return;
  if (outgoing_.empty()) {
    if (last_is_queued_) on_answer_sent();
    return;
  }
  sending_ = std::exchange(outgoing_, {});
  num_sent_ = 0;
  is_writing_ = true;
  write_some();
}

void Connection::write_some() {
  writing_timer_.expires_after(duration_of(parts_->settings.write_timeout_s));
  writing_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    const bool is_now = self->writing_timer_.expiry() <= std::chrono::steady_clock::now();
    if (!error && is_now && self->is_writing_) self->cut();
  });
  wire_.write_some(asio::buffer(sending_.data() + num_sent_, sending_.size() - num_sent_),
                   [self = shared_from_this()](const error_code& error, size_t size) {
                     self->on_written(error, size);
                   });
}

void Connection::on_written(const error_code& error, size_t size) {
  if (is_over_) return;
  if (error) return cut();
  pending_bytes_ -= size;
  num_sent_ += size;
  if (num_sent_ < sending_.size()) return write_some();
  is_writing_ = false;
  sending_ = {};
  writing_timer_.cancel();
  write_more();
}

void Connection::on_answer_sent() {
  last_is_queued_ = answer_has_begun_ = has_beats_ = false;
  beat_timer_.cancel();
  exchange_.reset();
  if (counts_exchange_) --parts_->num_exchanges;
  counts_exchange_ = false;
  if (!keeps_alive_ || parts_->is_draining) return linger();
  phase_ = Phase::kReading;
  request_ = {};
  begun_s_ = 0;
  reader_.next();
  go_on();
}

// --- the end ----------------------------------------------------------------------------------

// A socket that is closed while bytes of its client wait in it takes the answer with it: they are
// read for a while.
void Connection::linger() {
  phase_ = Phase::kLingering;
  await(Waits::kEnd, kLingerS);
  wire_.say_end([self = shared_from_this()](const error_code&) {
    if (self->is_over_) return;
    if (self->wire_.is_encrypted()) return self->cut();
    self->read_more();
  });
}

void Connection::cut() {
  if (is_over_) return;
  is_over_ = is_cut_ = true;
  reading_timer_.cancel();
  writing_timer_.cancel();
  beat_timer_.cancel();
  wire_.close();
  outgoing_ = {};
  if (counts_exchange_) --parts_->num_exchanges;
  counts_exchange_ = false;
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->connections.erase(this);
  }
  if (const auto exchange = exchange_.lock()) exchange->close();
}

}  // namespace danlu::http
