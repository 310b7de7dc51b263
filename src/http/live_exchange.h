// http/live_exchange.h: the exchange of a connection: an answer put into HTTP's words.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http/connection.h"
#include "http/exchange.h"

namespace danlu::http {

/// How an answer is written for one request.
struct AnswerForm {
  bool is_old = false;       ///< HTTP/1.0
  bool is_head = false;      ///< no body
  bool keeps_alive = false;  ///< the connection
};

/// A whole answer as bytes.
std::string answer_bytes(const Response& response, const Headers& more, const AnswerForm& form);

class LiveExchange final : public Exchange, public std::enable_shared_from_this<LiveExchange> {
 public:
  LiveExchange(std::shared_ptr<Connection> connection, Request request, Headers headers,
               AnswerForm form, double begun_s);
  ~LiveExchange() override;

  const Request& request() const override { return request_; }
  void add_header(std::string name, std::string value) override;
  void respond(Response response) override;
  void respond_with(std::function<Response()> make) override;
  void begin_stream(int status, Headers headers) override;
  bool write(std::string bytes) override;
  void end() override;
  size_t pending_bytes() const override { return connection_->pending_bytes(); }
  bool is_open() const override;
  void on_close(std::function<void()> callback) override;

  /// The client is gone. Of the connection.
  void close();

 private:
  enum class Phase { kUnanswered, kStreaming, kAnswered, kClosed };
  /// REQUIRES: the mutex is held.
  bool send(std::string bytes, bool is_last);
  void note(int status) const;

  const std::shared_ptr<Connection> connection_;
  const Request request_;
  const AnswerForm form_;
  const double begun_s_;
  int stream_status_ = 0;
  mutable std::mutex mutex_;
  Headers headers_;
  Phase phase_ = Phase::kUnanswered;
  std::function<void()> on_close_;
};

}  // namespace danlu::http
