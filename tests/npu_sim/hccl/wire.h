// Messages between ranks and the hub that joins them, over TCP on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace npu_sim::hccl {

/// What a collective is; the same on every rank.
struct Head {
  uint32_t operation = 0;  // Operation
  uint32_t dtype = 0;
  uint32_t reduce = 0;
  uint32_t root = 0;
  uint64_t count = 0;
  bool operator==(const Head&) const = default;
};

enum class Operation : uint32_t {
  kHello,
  kWelcome,
  kRefused,
  kPeerLost,  // of the connection
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kScatter,  // everybody sends the same count
  kAllGatherV,
  kReduceScatterV,
  kAlltoAllV,
  kBarrier,
  kExchange,
  kResult,
  kMismatch
};
const char* name_of(Operation operation);
std::string shown(const Head& head);

/// A message: the head, numbers whose meaning the operation gives, and bytes.
struct Message {
  Head head;
  uint32_t rank = 0;
  std::vector<uint64_t> numbers;
  std::string payload;
};

/// Blocks; false if the other side is gone.
bool send_message(int socket, const Message& message);
/// Waits in short steps and asks `give_up` between them; false if it says so, or if the other side
/// is gone.
enum class Received { kMessage, kGone, kGivenUp };
Received receive_message(int socket, Message* message, const std::function<bool()>& give_up);

/// A listening socket on 127.0.0.1 with a port that was free; -1 on failure.
int listen_somewhere(int* port);
int connect_to(int port);

}  // namespace npu_sim::hccl
