// base/free_port.h: a TCP port of the loopback interface that nobody listens on.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>

namespace danlu {

/// Free now: another program may take it before it is used. nullopt, and errno, if there is none.
inline std::optional<int64_t> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool found = fd >= 0 && ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
  const int code = errno;
  if (fd >= 0) ::close(fd);
  errno = code;
  if (!found) return std::nullopt;
  return ntohs(address.sin_port);
}

}  // namespace danlu
