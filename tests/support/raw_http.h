// tests/support/raw_http.h: a client that sends any bytes and shows what came back.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace danlu::test {

struct RawResponse {
  int status = 0;                              ///< 0: the connection was closed before one came
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< chunks put together
  bool is_complete = false;                    ///< the body came to its end
};

/// One connection to the loopback.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void end_sending() {
    ::shutdown(fd_, SHUT_WR);
    is_done_ = true;
  }

  /// false: the server is gone.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  /// More bytes into received(). false: the end, or nothing came in time.
  bool receive(int timeout_ms = 20000) {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, timeout_ms) != 1) return false;
    char bytes[65536];
    const ssize_t size = ::recv(fd_, bytes, sizeof bytes, 0);
    if (size <= 0) {
      is_closed_ = true;
      return false;
    }
    received_.append(bytes, static_cast<size_t>(size));
    return true;
  }
  const std::string& received() const { return received_; }
  /// The server has closed the connection.
  bool is_closed() const { return is_closed_; }
  /// Waits for the end of the connection, or for `timeout_ms` without a byte.
  bool comes_to_end(int timeout_ms = 20000) {
    while (receive(timeout_ms)) {
    }
    return is_closed_;
  }
  bool receive_until(std::string_view text) {
    while (received_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }

  /// The next response, taken out of received(). has_body: false for HEAD's.
  RawResponse response(bool has_body = true) {
    RawResponse response;
    if (!receive_until("\r\n\r\n")) return response;
    const size_t end = received_.find("\r\n\r\n");
    read_head(received_.substr(0, end + 2), &response);
    received_.erase(0, end + 4);
    if (is_done_ && response.status == 100) return this->response(has_body);  // asks who is there
    const auto length = response.headers.find("content-length");
    if (!has_body || response.status == 204 || response.status == 304) {
      response.is_complete = true;
    } else if (response.headers.count("transfer-encoding")) {
      response.is_complete = read_chunks(&response.body);
    } else if (length != response.headers.end()) {
      const size_t size = std::stoul(length->second);
      while (received_.size() < size && receive()) {
      }
      response.is_complete = received_.size() >= size;
      response.body = received_.substr(0, size);
      received_.erase(0, size);
    } else {
      response.is_complete = comes_to_end();
      response.body = received_;
      received_.clear();
    }
    return response;
  }

 private:
  static void read_head(const std::string& head, RawResponse* response) {
    if (head.size() > 12) response->status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      response->headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  bool read_chunks(std::string* body) {
    while (true) {
      if (!receive_until("\r\n")) return false;
      const size_t end = received_.find("\r\n");
      const size_t size = std::strtoul(received_.c_str(), nullptr, 16);
      while (received_.size() < end + 2 + size + 2) {
        if (!receive()) return false;
      }
      body->append(received_, end + 2, size);
      received_.erase(0, end + 2 + size + 2);
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  std::string received_;
  bool is_closed_ = false, is_done_ = false;
};

/// A request with its length. more: further headers, each with its line's end.
inline std::string raw_request(const std::string& method, const std::string& target,
                               const std::string& body = {}, const std::string& more = {}) {
  std::string text = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more;
  if (!body.empty() || method == "POST")
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

}  // namespace danlu::test
