// Ports that processes of a job meet at.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/free_port.h"
#include "base/message.h"
#include "doctor/check.h"
#include "doctor/ports.h"

namespace danlu::doctor {

int try_port(int64_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // Listens as whoever is to listen there would: a connection that just ended is no hindrance.
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    ::listen(fd, 1) == 0;
  const int error = free ? 0 : errno;
  ::close(fd);
  return error;
}

Finding check_ports(const SystemRoots& roots) {
  const auto port = free_port();
  if (!port) {
    return {Verdict::kFailed, tr("no port of this machine can be had: {}", std::strerror(errno)),
            tr("a job of several processes needs the loopback interface: ip link set lo up")};
  }
  Finding finding{Verdict::kOk, tr("ports can be had on this machine"), ""};
  const std::string set = roots.variable("MASTER_PORT");
  if (set.empty()) return finding;
  const auto number = number_of(set);
  if (!number || *number < 1 || *number > 65535) {
    finding.add(Verdict::kFailed, tr("MASTER_PORT={} is no port", set),
                tr("a number between 1 and 65535"));
    return finding;
  }
  const int error = try_port(*number);
  finding.add(error ? Verdict::kWarning : Verdict::kOk,
              error ? fmt::format("MASTER_PORT={}: {}", set, std::strerror(error))
                    : tr("MASTER_PORT={} is free", set),
              error ? tr("if this machine is to be machine 0: another port, the same on all "
                         "machines, or end what listens there (ss -ltnp)")
                    : std::string());
  return finding;
}

}  // namespace danlu::doctor
