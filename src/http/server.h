// http/server.h: an HTTP/1.1 server, by itself or under TLS: few threads, many connections.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "http/router.h"

namespace danlu::http {

/// A quarter of the processors, and some: a few requests that are slow to read hold no others up.
int default_handler_threads();

struct TlsFiles {
  std::filesystem::path certificate;  ///< PEM, with those that lead to the root
  std::filesystem::path key;          ///< PEM
};

/// A request whose answer is complete, or will not be.
struct Answered {
  const Request& request;  ///< of one that was malformed, empty
  int status;              ///< 499: the client left
  double seconds;          ///< since its headers were there
  const Headers& headers;  ///< that handlers and guards added to the answer
};

struct Settings {
  std::string host = "127.0.0.1";  ///< a name or an address; every address of it is listened on
  uint16_t port = 8000;            ///< 0: one that is free
  std::optional<TlsFiles> tls = {};
  size_t max_header_bytes = size_t{64} << 10;  ///< request line and headers; more: 431
  size_t max_body_bytes = size_t{64} << 20;    ///< more: 413
  size_t max_connections = 4096;               ///< more: the new one is answered 503
  /// Bytes that the client of a connection has not taken yet; with more it is cut.
  size_t max_output_bytes = size_t{8} << 20;
  double header_timeout_s = 20;      ///< from a request's first byte to the end of its headers
  double body_timeout_s = 120;       ///< from there to the end of its body
  double keep_alive_timeout_s = 60;  ///< a connection without a request
  double write_timeout_s = 30;       ///< in which a client that is sent bytes takes none
  /// A stream of events that is silent for so long says so in a comment: proxies cut what says
  /// nothing, and clients then ask again. 0: none does.
  double beat_s = 15;
  int io_threads = 2;
  int handler_threads = default_handler_threads();
  int slow_handler_threads = 2;  ///< for Pace::kSlow
  /// Told of each; on threads of the server, which must not wait. May be empty.
  std::function<void(const Answered&)> on_answer = {};
};

/// What a server has now.
struct ServerCounts {
  size_t connections = 0;
  size_t exchanges = 0;  ///< requests that wait for the end of their answer
};

class Server {
 public:
  Server(Settings settings, Router router);
  /// Ends as stop(0) does.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Listens, and returns. Errors: IoError if the address cannot be listened on, or a file of TLS
  /// cannot be read; UsageError if host is no address of this machine.
  void start();
  uint16_t port() const;
  /// "http://127.0.0.1:8000"
  std::string url() const;
  /// Takes no new request, and lets those under way end for so long. Returns whether all did.
  bool drain(double drain_s);
  /// The same, and then cuts the rest.
  bool stop(double drain_s);
  ServerCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::http
