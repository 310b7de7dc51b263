// http/exchange.h: a request that waits for its answer.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "http/message.h"

namespace danlu::http {

/// One request and the way back to its client. Every function may be called from any thread, and
/// none waits for the client. One that is destroyed unanswered is answered with a 500, and a stream
/// that was not ended is cut, so that the client sees that something is missing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Does not change.
  virtual const Request& request() const = 0;

  /// Goes with the answer, whatever it is. Before the answer begins.
  virtual void add_header(std::string name, std::string value) = 0;

  /// The whole answer. The first answer counts; later ones do nothing.
  virtual void respond(Response response) = 0;
  /// The same, made on a thread for handlers: for large answers whose parts come from a thread that
  /// must not wait. What `make` throws becomes a 500.
  virtual void respond_with(std::function<Response()> make) { respond(make()); }

  /// Instead of respond(): an answer that comes in pieces.
  virtual void begin_stream(int status, Headers headers) = 0;
  /// false: the client is gone, or did not read and was cut; nothing else will reach it.
  /// REQUIRES: begin_stream() was called, end() was not.
  virtual bool write(std::string bytes) = 0;
  virtual void end() = 0;

  /// Bytes that were written and have not left yet: a handler that makes more than a client reads
  /// looks here before it makes more.
  virtual size_t pending_bytes() const = 0;

  /// false: the client is gone, or the answer is complete.
  virtual bool is_open() const = 0;
  /// `callback` runs once when the client goes before its answer was complete: at once if it has
  /// gone already. It runs on a thread of the server and must not wait. The last one set counts.
  virtual void on_close(std::function<void()> callback) = 0;
};

using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace danlu::http
