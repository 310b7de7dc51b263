#include "hccl/wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace npu_sim::hccl {
namespace {

constexpr int kStepMs = 20;

struct Frame {
  uint64_t numbers, bytes;
  uint32_t rank, padding;
};

bool send_all(int socket, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, p, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    p += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

Received receive_all(int socket, void* data, size_t bytes, const std::function<bool()>& give_up) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    pollfd wait{socket, POLLIN, 0};
    const int ready = poll(&wait, 1, kStepMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) {
      if (give_up()) return Received::kGivenUp;
      continue;
    }
    const ssize_t got = recv(socket, p, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Received::kGone;
    p += got;
    bytes -= static_cast<size_t>(got);
  }
  return Received::kMessage;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

const char* name_of(Operation operation) {
  static const char* const kNames[] = {
      "hello",     "welcome",   "refused",       "peer lost", "AllReduce",  "Reduce",
      "Broadcast", "AllGather", "ReduceScatter", "Scatter",   "AllGatherV", "ReduceScatterV",
      "AlltoAllV", "Barrier",   "SendRecv",      "result",    "mismatch"};
  return kNames[static_cast<uint32_t>(operation)];
}

std::string shown(const Head& head) {
  return std::string("Hccl") + name_of(static_cast<Operation>(head.operation)) + "(count " +
         std::to_string(head.count) + ", type " + std::to_string(head.dtype) + ", reduction " +
         std::to_string(head.reduce) + ", root " + std::to_string(head.root) + ")";
}

bool send_message(int socket, const Message& message) {
  const Frame frame{message.numbers.size(), message.payload.size(), message.rank, 0};
  return send_all(socket, &frame, sizeof frame) &&
         send_all(socket, &message.head, sizeof message.head) &&
         send_all(socket, message.numbers.data(), message.numbers.size() * 8) &&
         send_all(socket, message.payload.data(), message.payload.size());
}

Received receive_message(int socket, Message* message, const std::function<bool()>& give_up) {
  Frame frame{};
  Received r = receive_all(socket, &frame, sizeof frame, give_up);
  if (r == Received::kMessage)
    r = receive_all(socket, &message->head, sizeof message->head, give_up);
  if (r != Received::kMessage) return r;
  message->rank = frame.rank;
  message->numbers.resize(frame.numbers);
  message->payload.resize(frame.bytes);
  r = receive_all(socket, message->numbers.data(), frame.numbers * 8, give_up);
  return r == Received::kMessage
             ? receive_all(socket, message->payload.data(), frame.bytes, give_up)
             : r;
}

int listen_somewhere(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    if (fd >= 0) close(fd);
    return -1;
  }
  *port = ntohs(address.sin_port);
  return fd;
}

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (fd >= 0) close(fd);
    return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace npu_sim::hccl
