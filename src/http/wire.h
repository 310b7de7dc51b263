// http/wire.h: a connection's socket, by itself or under TLS, as one thing.
#pragma once
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <utility>

namespace danlu::http {

namespace asio = boost::asio;
using boost::system::error_code;

/// Everything runs on the socket's executor.
class Wire {
 public:
  Wire(asio::ip::tcp::socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls) encrypted_.emplace(socket_, *tls);
  }

  bool is_encrypted() const { return encrypted_.has_value(); }
  asio::ip::tcp::socket& socket() { return socket_; }

  template <typename OnDone>
  void handshake(OnDone on_done) {
    encrypted_->async_handshake(asio::ssl::stream_base::server, std::move(on_done));
  }
  template <typename OnRead>
  void read_some(asio::mutable_buffer into, OnRead on_read) {
    if (encrypted_) return encrypted_->async_read_some(into, std::move(on_read));
    socket_.async_read_some(into, std::move(on_read));
  }
  template <typename OnWritten>
  void write_some(asio::const_buffer from, OnWritten on_written) {
    if (encrypted_) return encrypted_->async_write_some(from, std::move(on_written));
    socket_.async_write_some(from, std::move(on_written));
  }
  template <typename OnDone>
  void say_end(OnDone on_done) {
    if (encrypted_) return encrypted_->async_shutdown(std::move(on_done));
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    asio::post(socket_.get_executor(), [done = std::move(on_done)]() mutable { done({}); });
  }
  void close() {
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  asio::ip::tcp::socket socket_;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> encrypted_;
};

}  // namespace danlu::http
