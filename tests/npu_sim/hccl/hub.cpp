#include "hccl/hub.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "core/config.h"
#include "hccl/arithmetic.h"

namespace npu_sim::hccl {
namespace {

bool never() { return false; }

/// What each rank gets of a collective whose parts all have one head.
class Results {
 public:
  explicit Results(const std::vector<const Message*>& parts)
      : parts_(parts), head_(parts[0]->head) {
    bytes_ = head_.count * size_of(head_.dtype);
  }

  std::string of(uint32_t rank) const {
    switch (static_cast<Operation>(head_.operation)) {
      case Operation::kAllReduce:
        return sum(0, head_.count);
      case Operation::kReduce:
        return rank == head_.root ? sum(0, head_.count) : "";
      case Operation::kBroadcast:
        return parts_[head_.root]->payload;
      case Operation::kScatter:
        return parts_[head_.root]->payload.substr(rank * bytes_, bytes_);
      case Operation::kReduceScatter:
        return sum(rank * head_.count, head_.count);
      case Operation::kAllGather:
      case Operation::kAllGatherV:
        return all();
      case Operation::kReduceScatterV: {
        const auto& n = parts_[0]->numbers;  // counts, then displacements
        return sum(n[parts_.size() + rank], n[rank]);
      }
      case Operation::kAlltoAllV:
        return for_rank(rank);
      default:
        return "";
    }
  }

  /// Why the parts do not go together although their heads do; empty if they do.
  std::string trouble() const {
    const size_t n = parts_.size();
    const auto op = static_cast<Operation>(head_.operation);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        // AlltoAllV: counts to send, then counts to receive. AllGatherV: own count, then
        // everybody's.
        uint64_t given = 0, wanted = 0;
        if (op == Operation::kAlltoAllV) {
          given = parts_[i]->numbers[j];
          wanted = parts_[j]->numbers[n + i];
        } else if (op == Operation::kAllGatherV) {
          given = parts_[i]->numbers[0];
          wanted = parts_[j]->numbers[1 + i];
        } else if (op == Operation::kReduceScatterV) {
          given = parts_[i]->numbers[j];
          wanted = parts_[0]->numbers[j];
        }
        if (given == wanted) continue;
        return "rank " + std::to_string(i) + " sends " + std::to_string(given) + " to rank " +
               std::to_string(j) + ", which waits for " + std::to_string(wanted);
      }
    }
    return "";
  }

 private:
  std::string sum(uint64_t first, uint64_t count) const {
    std::vector<const char*> from;
    for (const Message* part : parts_)
      from.push_back(part->payload.data() + first * size_of(head_.dtype));
    return reduced(from, count, head_.dtype, head_.reduce);
  }

  std::string all() const {
    std::string joined;
    for (const Message* part : parts_) joined += part->payload;
    return joined;
  }

  std::string for_rank(uint32_t rank) const {
    std::string joined;
    for (const Message* part : parts_) {
      uint64_t before = 0;
      for (uint32_t i = 0; i < rank; ++i) before += part->numbers[i];
      const size_t one = size_of(head_.dtype);
      joined += part->payload.substr(before * one, part->numbers[rank] * one);
    }
    return joined;
  }

  const std::vector<const Message*>& parts_;
  Head head_;
  uint64_t bytes_;
};

}  // namespace

void Hub::run() {
  while (size_ == 0 || left_ < size_) {
    std::vector<pollfd> wait;
    std::vector<uint32_t> whose;
    if (size_ == 0 || joined_ < size_) wait.push_back({listener_, POLLIN, 0});
    const size_t skip = wait.size();
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].socket < 0) continue;
      wait.push_back({ranks_[r].socket, POLLIN, 0});
      whose.push_back(r);
    }
    if (poll(wait.data(), wait.size(), 1000) <= 0) continue;
    if (skip && (wait[0].revents & POLLIN)) accept_rank();
    for (size_t i = 0; i < whose.size(); ++i) {
      if (wait[skip + i].revents && ranks_[whose[i]].socket >= 0) take(whose[i]);
    }
  }
  close(listener_);
}

void Hub::refuse(int socket, const std::string& why) {
  Message message;
  message.head.operation = static_cast<uint32_t>(Operation::kRefused);
  message.payload = why;
  send_message(socket, message);
  close(socket);
}

void Hub::accept_rank() {
  const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0 || !read_hello(socket)) return;
  if (joined_ < size_) return;
  for (uint32_t r = 0; r < size_; ++r) answer(r, Operation::kWelcome, "");
}

/// numbers: secret, ranks, rank, card, process.
bool Hub::read_hello(int socket) {
  Message hello;
  if (receive_message(socket, &hello, never) != Received::kMessage || hello.numbers.size() != 5 ||
      hello.numbers[0] != secret_) {
    refuse(socket, "this root info is not good here");
    return false;
  }
  const uint64_t size = hello.numbers[1], rank = hello.numbers[2];
  if (size_ == 0) {
    size_ = size;
    ranks_.resize(size);
  }
  if (size != size_ || rank >= size_ || ranks_[rank].socket >= 0) {
    refuse(socket, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                       " does not go with " + std::to_string(size_) +
                       " ranks, or is there already");
    return false;
  }
  static const bool shared = number_from_environment("NPU_SIM_SHARED_CARDS", 0) != 0;
  for (const Rank& other : ranks_) {
    if (shared || other.socket < 0 || other.card != hello.numbers[3]) continue;
    refuse(socket, "card " + std::to_string(other.card) + " is used by two ranks");
    return false;
  }
  ranks_[rank].socket = socket;
  ranks_[rank].card = hello.numbers[3];
  ranks_[rank].process = hello.numbers[4];
  ++joined_;
  return true;
}

void Hub::answer(uint32_t rank, Operation operation, const std::string& payload) {
  if (ranks_[rank].socket < 0) return;
  Message message;
  message.head.operation = static_cast<uint32_t>(operation);
  message.payload = payload;
  send_message(ranks_[rank].socket, message);
}

void Hub::lose(uint32_t rank) {
  close(ranks_[rank].socket);
  ranks_[rank].socket = -1;
  ++left_;
  for (uint32_t r = 0; r < size_; ++r)
    answer(r, Operation::kPeerLost, "rank " + std::to_string(rank) + " is gone");
}

void Hub::take(uint32_t rank) {
  Message message;
  if (receive_message(ranks_[rank].socket, &message, never) != Received::kMessage)
    return lose(rank);
  message.rank = rank;
  if (message.head.operation == static_cast<uint32_t>(Operation::kExchange))
    return begin_exchange(std::move(message));
  ranks_[rank].parts.push_back(std::move(message));
  finish_collectives();
}

void Hub::finish_collectives() {
  for (;;) {
    std::vector<const Message*> parts;
    for (const Rank& rank : ranks_) {
      if (rank.parts.empty()) return;
      parts.push_back(&rank.parts.front());
    }
    std::string trouble;
    for (const Message* part : parts) {
      if (part->head == parts[0]->head) continue;
      trouble = "rank 0 calls " + shown(parts[0]->head) + ", rank " + std::to_string(part->rank) +
                " calls " + shown(part->head);
      break;
    }
    const Results results(parts);
    if (trouble.empty()) trouble = results.trouble();
    for (uint32_t r = 0; r < size_; ++r) {
      if (trouble.empty()) {
        answer(r, Operation::kResult, results.of(r));
      } else {
        answer(r, Operation::kMismatch, trouble);
      }
    }
    for (Rank& rank : ranks_) rank.parts.pop_front();
  }
}

/// numbers: for each item whether it receives, the peer, the count and the type; the payload holds
/// what is sent.
void Hub::begin_exchange(Message message) {
  const size_t items = message.numbers.size() / 4;
  auto exchange = std::make_shared<Exchange>(
      Exchange{message.rank, items, std::vector<std::string>(items), ""});
  size_t used = 0;
  std::vector<std::pair<uint64_t, uint64_t>> touched;
  for (size_t i = 0; i < items; ++i) {
    const uint64_t* n = message.numbers.data() + 4 * i;
    const bool receives = n[0] != 0;
    Half half{exchange, i, n[2], n[3], ""};
    if (!receives) {
      half.payload = message.payload.substr(used, n[2] * size_of(static_cast<uint32_t>(n[3])));
      used += half.payload.size();
    }
    const auto pair = receives ? std::pair{n[1], uint64_t{message.rank}}
                               : std::pair{uint64_t{message.rank}, n[1]};
    (receives ? receives_ : sends_)[pair].push_back(std::move(half));
    touched.push_back(pair);
  }
  for (const auto& [from, to] : touched) match(from, to);
}

void Hub::match(uint64_t from, uint64_t to) {
  auto &sends = sends_[{from, to}], &receives = receives_[{from, to}];
  while (!sends.empty() && !receives.empty()) {
    const Half sent = std::move(sends.front()), wanted = std::move(receives.front());
    sends.pop_front();
    receives.pop_front();
    std::string trouble;
    if (sent.count != wanted.count || sent.dtype != wanted.dtype) {
      trouble = "rank " + std::to_string(from) + " sends " + std::to_string(sent.count) +
                " of type " + std::to_string(sent.dtype) + ", rank " + std::to_string(to) +
                " waits for " + std::to_string(wanted.count) + " of type " +
                std::to_string(wanted.dtype);
    }
    close_item(sent, "", trouble);
    close_item(wanted, sent.payload, trouble);
  }
}

void Hub::close_item(const Half& half, const std::string& payload, const std::string& trouble) {
  Exchange& exchange = *half.of;
  exchange.received[half.item] = payload;
  if (!trouble.empty()) exchange.trouble = trouble;
  if (--exchange.open > 0) return;
  std::string joined;
  for (const std::string& part : exchange.received) joined += part;
  if (exchange.trouble.empty()) {
    answer(exchange.rank, Operation::kResult, joined);
  } else {
    answer(exchange.rank, Operation::kMismatch, exchange.trouble);
  }
}

}  // namespace npu_sim::hccl
