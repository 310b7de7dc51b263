// http/connection.h: one client's connection: requests come in, one answer at a time goes out.
#pragma once
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "http/request_reader.h"
#include "http/router.h"
#include "http/server.h"
#include "http/wire.h"

namespace danlu::http {

class Connection;
class LiveExchange;

/// What connections share. An exchange that somebody keeps keeps it too, beyond the server.
struct ServerParts {
  ServerParts(Settings with, Router by)
      : settings(std::move(with)),
        router(std::move(by)),
        io(settings.io_threads),
        handlers(static_cast<size_t>(settings.handler_threads)),
        prompt_handlers(1),
        slow_handlers(static_cast<size_t>(settings.slow_handler_threads)),
        large_handlers(1) {}
  const Settings settings;
  const Router router;
  asio::io_context io;
  asio::thread_pool& handlers_of(Pace pace) {
    if (pace == Pace::kPrompt) return prompt_handlers;
    return pace == Pace::kSlow ? slow_handlers : handlers;
  }
  /// Large bodies take memory and time: one is worked on at a time, and short ones do not wait.
  asio::thread_pool handlers, prompt_handlers, slow_handlers, large_handlers;
  std::atomic<uint64_t> large_bytes = 0;  ///< of large bodies that are read, or wait
  std::atomic<bool> is_draining = false;
  std::atomic<size_t> num_exchanges = 0;
  std::mutex mutex;
  std::map<Connection*, std::weak_ptr<Connection>> connections = {};  ///< by the mutex
};

/// All but pending_bytes, add_pending and the posts run on the socket's strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerParts> parts, asio::ip::tcp::socket socket,
             asio::ssl::context* tls);

  /// One too many: a few words, and away. Before it is started.
  void turn_away();

  // From any thread.
  void post_start();
  void post_send(std::string bytes, bool is_last);
  void post_cut();
  /// On a thread for handlers.
  void post_work(std::function<void()> work);
  /// From now on the answer under way, a stream of events, is never silent for long.
  void post_beats();
  void post_close_if_idle();
  size_t pending_bytes() const { return pending_bytes_; }
  bool is_cut() const { return is_cut_; }
  /// Counts bytes that post_send is given next. false: the client left too many lying, and is cut;
  /// of a whole answer nothing is too many.
  bool add_pending(size_t size, bool is_whole);
  const Router& router() const { return parts_->router; }
  const Settings& settings() const { return parts_->settings; }

 private:
  enum class Phase { kReading, kAnswering, kLingering };
  /// What the deadline of reading is for.
  enum class Waits { kNothing, kRequest, kHead, kBody, kEnd };

  void start();
  void read_more();
  void on_read(const error_code& error, size_t size);
  void ask_who_sends_no_more();
  void send_continue();
  void go_on();
  void on_head();
  /// false: the request was answered.
  bool pass_guards();
  bool find_handler();
  void answer(const Response& response);
  void refuse(const Response& response);
  void refuse_full();
  void note(int status) const;
  void dispatch();
  void hand_over(std::shared_ptr<LiveExchange> exchange);
  /// Counts a body among the large ones, if it is. false: there are too many.
  bool holds_body(uint64_t bytes);
  void send(std::string bytes, bool is_last);
  void await_beat(std::weak_ptr<LiveExchange> of);
  void write_more();
  void write_some();
  void on_written(const error_code& error, size_t size);
  void on_answer_sent();
  void linger();
  void cut();
  void await(Waits what, double seconds);
  void on_reading_deadline();

  const std::shared_ptr<ServerParts> parts_;
  Wire wire_;
  RequestReader reader_;
  asio::steady_timer reading_timer_, writing_timer_, beat_timer_;
  std::chrono::steady_clock::time_point sent_at_;  ///< the last bytes of an answer
  std::array<char, 16384> input_;
  std::string outgoing_, sending_;
  size_t num_sent_ = 0;  ///< of sending_
  std::atomic<size_t> pending_bytes_ = 0;
  std::atomic<bool> is_cut_ = false;  ///< as others see it; is_over_: it happened
  Request request_;
  double begun_s_ = 0;                ///< the request's headers were there
  std::shared_ptr<void> large_body_;  ///< counts it while it is there
  const Handler* handler_ = nullptr;
  Pace pace_ = Pace::kAny;
  Headers answer_headers_;
  std::weak_ptr<LiveExchange> exchange_;
  Phase phase_ = Phase::kReading;
  Waits waits_ = Waits::kNothing;
  bool is_reading_ = false, is_writing_ = false;
  bool keeps_alive_ = true;
  bool client_is_done_ = false;  ///< it sends nothing any more
  bool answer_has_begun_ = false, has_beats_ = false;
  bool last_is_queued_ = false;  ///< the answer's end is in outgoing_ or on its way
  bool counts_exchange_ = false;
  bool is_over_ = false;
};

}  // namespace danlu::http
