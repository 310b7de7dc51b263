// http/request_reader.h: the bytes of a connection, taken apart into requests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace danlu::http {

/// Reads one request after the other. Not thread-safe.
class RequestReader {
 public:
  enum class State {
    kHead,      ///< more bytes are needed before the headers are complete
    kHeadRead,  ///< they are: take_head() has them; go_on() reads the body
    kBody,      ///< more bytes are needed
    kRead,      ///< take_body() has it; next() begins the request after this one
    kFailed,    ///< status() and problem() say why; nothing can follow
  };

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);
  ~RequestReader();

  /// Keeps the bytes, and reads on in the head or the body.
  void append(std::string_view bytes);
  void go_on();
  void next();
  State state() const;

  Request take_head();  ///< all but the body, its places and its peer
  std::string take_body();
  /// What the request says whose head was read.
  bool keeps_alive() const;       ///< the client may send another one on this connection
  bool is_old() const;            ///< HTTP/1.0, which knows no chunks
  bool expects_continue() const;  ///< the client waits with the body until it is told to go on
  bool has_body() const;          ///< one follows, or might
  uint64_t body_length() const;   ///< as the head says it; 0: none, or in chunks
  /// The first byte of a request was seen.
  bool has_begun() const;
  size_t buffered_bytes() const;

  int status() const;                  ///< 400, 413, 431 or 501
  const std::string& problem() const;  ///< one sentence in English

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::http
