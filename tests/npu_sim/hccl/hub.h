// Where all ranks of a communicator meet: a thread in the process of the rank that made the root
// info. It waits for everybody's part of a collective, compares them, and answers each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hccl/wire.h"

namespace npu_sim::hccl {

class Hub {
 public:
  Hub(int listener, uint64_t secret) : listener_(listener), secret_(secret) {}
  /// Until the last rank has left.
  void run();

 private:
  struct Rank {
    int socket = -1;
    uint64_t card = 0, process = 0;
    std::deque<Message> parts;  // of collectives that wait for others
  };
  /// One or several sends and receives of a rank, answered when all have met their partners.
  struct Exchange {
    uint32_t rank;
    size_t open;
    std::vector<std::string> received;  // by item; empty for sends
    std::string trouble;
  };
  struct Half {
    std::shared_ptr<Exchange> of;
    size_t item;
    uint64_t count, dtype;
    std::string payload;
  };

  void accept_rank();
  bool read_hello(int socket);
  void refuse(int socket, const std::string& why);
  void take(uint32_t rank);
  void lose(uint32_t rank);
  void begin_exchange(Message message);
  void match(uint64_t from, uint64_t to);
  void close_item(const Half& half, const std::string& payload, const std::string& trouble);
  void finish_collectives();
  void answer(uint32_t rank, Operation operation, const std::string& payload);

  int listener_;
  uint64_t secret_;
  uint64_t size_ = 0;
  size_t joined_ = 0, left_ = 0;
  std::vector<Rank> ranks_;
  std::map<std::pair<uint64_t, uint64_t>, std::deque<Half>> sends_, receives_;
};

}  // namespace npu_sim::hccl
