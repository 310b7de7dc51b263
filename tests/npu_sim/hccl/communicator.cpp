#include "hccl/communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "core/config.h"
#include "core/memory.h"
#include "core/report.h"
#include "hccl/hub.h"

namespace npu_sim::hccl {
namespace {

constexpr uint64_t kMagic = 0x4d495355504e0001;  // of a root info
constexpr uint32_t kConfigMagic = 0xf0f0f0f0, kUnset = 0xffffffff;
constexpr int64_t kMiB = 1 << 20;

struct Root {
  uint64_t magic, secret;
  int64_t port;
};

struct Book {
  std::mutex lock;
  std::set<Communicator*> alive;
  std::set<int> joining;  // cards that a thread makes a communicator for
};

Book& book() {
  static Book* the = new Book;
  return *the;
}

/// Reads what an 8.1 caller wrote: its own size bounds what is there.
HcclResult read_config(const HcclCommConfig* config, Communicator* comm) {
  if (!config) return HCCL_SUCCESS;
  size_t size = 0;
  uint32_t magic = 0, version = 0;
  std::memcpy(&size, config->reserved, 8);
  std::memcpy(&magic, config->reserved + 8, 4);
  std::memcpy(&version, config->reserved + 12, 4);
  if (magic != kConfigMagic || size < 32 || version == 0)
    return refuse(HCCL_E_PARA, "EI0003: the config is not initialised");
  HcclCommConfig own;
  std::memset(&own, 0xFF, sizeof own);
  own.hcclCommName[0] = 0;
  std::memcpy(&own, config, std::min(size, sizeof own));
  if (own.hcclBufferSize != kUnset)
    comm->buffer_bytes = static_cast<int64_t>(own.hcclBufferSize) * 2 * kMiB;
  if (own.hcclCommName[0] != 0) comm->name.assign(own.hcclCommName, strnlen(own.hcclCommName, 127));
  return HCCL_SUCCESS;
}

int64_t connect_timeout_ms() {
  const int64_t own = number_from_environment("NPU_SIM_CONNECT_TIMEOUT_MS", 0);
  return own > 0 ? own : (number_from_environment("HCCL_CONNECT_TIMEOUT", 120) + 20) * 1000;
}

/// Says who this is and waits for the others.
HcclResult join_hub(Communicator* comm, const Root& root) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(connect_timeout_ms());
  const auto late = [&] { return std::chrono::steady_clock::now() >= end; };
  comm->socket = connect_to(static_cast<int>(root.port));
  if (comm->socket < 0)
    return refuse(HCCL_E_TCP_CONNECT, "EI0015: the root of the communicator is not reached");
  Message hello;
  hello.head.operation = static_cast<uint32_t>(Operation::kHello);
  hello.numbers = {root.secret, comm->size, comm->rank,
                   static_cast<uint64_t>(config().cards[static_cast<size_t>(comm->card)]),
                   static_cast<uint64_t>(getpid())};
  Message reply;
  const Received got = send_message(comm->socket, hello)
                           ? receive_message(comm->socket, &reply, late)
                           : Received::kGone;
  if (got == Received::kGivenUp) {
    return refuse(HCCL_E_TIMEOUT,
                  "EI0006: Getting socket times out. Not every rank came to the communicator");
  }
  if (got == Received::kGone)
    return refuse(HCCL_E_TCP_TRANSFER, "EI0015: the root of the communicator left");
  if (reply.head.operation != static_cast<uint32_t>(Operation::kWelcome))
    return refuse(HCCL_E_PARA, "EI0003: " + reply.payload);
  return HCCL_SUCCESS;
}

HcclResult init(uint32_t ranks, const HcclRootInfo* info, uint32_t rank,
                const HcclCommConfig* config, HcclComm* out, const char* function) {
  Context* context = nullptr;
  if (!info || !out) return refuse(HCCL_E_PTR, "EI0003: null argument");
  if (const aclError error = enter(function, Need::kContext, &context))
    return runtime_refused(error);
  if (ranks == 0 || rank >= ranks)
    return refuse(HCCL_E_PARA,
                  "EI0003: rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  Root root{};
  std::memcpy(&root, info->internal, sizeof root);
  if (root.magic != kMagic)
    return refuse(HCCL_E_PARA, "EI0003: the root info is not one of HcclGetRootInfo");
  auto comm = std::make_unique<Communicator>();
  comm->rank = rank;
  comm->size = ranks;
  comm->card = context->card;
  comm->buffer_bytes = number_from_environment("HCCL_BUFFSIZE", 200) * 2 * kMiB;
  comm->name =
      "127.0.0.1_" + std::to_string(root.port) + "_" + std::to_string(root.secret % 100000);
  if (const HcclResult bad = read_config(config, comm.get())) return bad;
  {
    std::lock_guard hold(book().lock);
    if (!book().joining.insert(context->card).second) {
      violation("two threads make communicators of one card at the same time");
      return HCCL_E_INTERNAL;
    }
  }
  const HcclResult joined = join_hub(comm.get(), root);
  std::lock_guard hold(book().lock);
  book().joining.erase(context->card);
  if (joined) {
    if (comm->socket >= 0) close(comm->socket);
    return joined;
  }
  book().alive.insert(comm.get());
  *out = comm.release();
  count("hccl.communicators");
  return HCCL_SUCCESS;
}

}  // namespace

HcclResult refuse(HcclResult code, const std::string& text) {
  fail(code, text + " [NPU SIMULATOR]");
  return code;
}

HcclResult runtime_refused(aclError error) {
  return error >= 1 && error <= 24 ? static_cast<HcclResult>(error) : HCCL_E_RUNTIME;
}

Communicator* find(HcclComm handle) {
  std::lock_guard hold(book().lock);
  auto* comm = static_cast<Communicator*>(handle);
  return book().alive.count(comm) ? comm : nullptr;
}

std::string Communicator::call(const Message& message) {
  std::lock_guard hold(talk);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(collective_timeout());
  const auto late = [&] { return std::chrono::steady_clock::now() >= end || task_is_cancelled(); };
  if (!broken.empty()) throw TaskError{107020, "EI0002: the communicator failed before: " + broken};
  bool gone = !send_message(socket, message);
  Message reply;
  for (;;) {
    const Received got = gone ? Received::kGone : receive_message(socket, &reply, late);
    if (got == Received::kMessage &&
        reply.head.operation == static_cast<uint32_t>(Operation::kResult))
      return reply.payload;
    if (got == Received::kMessage &&
        reply.head.operation == static_cast<uint32_t>(Operation::kMismatch)) {
      broken = reply.payload;
      throw TaskError{
          507011,
          "EI0005: The arguments for collective communication are inconsistent between ranks: " +
              broken};
    }
    if (got == Received::kMessage) {  // a peer was lost: as on hardware the wait goes on
      async_error = HCCL_E_REMOTE;
      continue;
    }
    if (got == Received::kGone) {
      async_error = HCCL_E_REMOTE;
      while (!late()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    broken = "a peer did not come";
    throw TaskError{
        107020,
        "EI0002: The wait execution of the Notify register times out. Reason: a peer of rank " +
            std::to_string(rank) + " did not come to " + shown(message.head) + " in " +
            std::to_string(collective_timeout()) + " ms [NPU SIMULATOR]"};
  }
}

void Communicator::look_for_lost_peers() {
  if (!talk.try_lock()) return;
  const std::lock_guard hold(talk, std::adopt_lock);
  char byte;
  pollfd wait{socket, POLLIN, 0};
  while (poll(&wait, 1, 0) > 0) {
    Message message;
    if (recv(socket, &byte, 1, MSG_PEEK) <= 0) {
      async_error = HCCL_E_REMOTE;
      return;
    }
    if (receive_message(socket, &message, [] { return false; }) != Received::kMessage) return;
    if (message.head.operation == static_cast<uint32_t>(Operation::kPeerLost))
      async_error = HCCL_E_REMOTE;
  }
}

}  // namespace npu_sim::hccl

using namespace npu_sim;
using namespace npu_sim::hccl;

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  if (!rootInfo) return refuse(HCCL_E_PTR, "EI0003: null rootInfo");
  if (const aclError error = enter("HcclGetRootInfo", Need::kContext))
    return runtime_refused(error);
  Root root{kMagic, std::random_device{}() * uint64_t{4294967291} + std::random_device{}(), 0};
  int port = 0;
  const int listener = listen_somewhere(&port);
  if (listener < 0) return refuse(HCCL_E_UNAVAIL, "EI0019: no port to listen on");
  root.port = port;
  std::memset(rootInfo->internal, 0, sizeof rootInfo->internal);
  std::memcpy(rootInfo->internal, &root, sizeof root);
  std::thread([listener, secret = root.secret] { Hub(listener, secret).run(); }).detach();
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                HcclComm* comm) {
  return init(nRanks, rootInfo, rank, nullptr, comm, "HcclCommInitRootInfo");
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  return init(nRanks, rootInfo, rank, config, comm, "HcclCommInitRootInfoConfig");
}

HcclResult HcclCommDestroy(HcclComm handle) {
  Communicator* comm = find(handle);
  if (!comm) {
    violation("HcclCommDestroy of a communicator that does not live");
    return HCCL_E_PARA;
  }
  if (comm->pending > 0)
    return refuse(HCCL_E_AGAIN, "EI9999: an operator of the communicator is still running");
  {
    std::lock_guard hold(book().lock);
    book().alive.erase(comm);
  }
  close(comm->socket);
  if (comm->charged) charge(comm->card, -comm->buffer_bytes);
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm handle, uint32_t* rankSize) {
  const Communicator* comm = find(handle);
  if (!comm || !rankSize) return refuse(HCCL_E_PTR, "EI0003: no communicator, or null rankSize");
  *rankSize = comm->size;
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm handle, uint32_t* rank) {
  const Communicator* comm = find(handle);
  if (!comm || !rank) return refuse(HCCL_E_PTR, "EI0003: no communicator, or null rank");
  *rank = comm->rank;
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm handle, char* commName) {
  const Communicator* comm = find(handle);
  if (!comm || !commName) return refuse(HCCL_E_PTR, "EI0003: no communicator, or null name");
  std::memset(commName, 0, 128);
  comm->name.copy(commName, 127);
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm handle, HcclResult* asyncError) {
  Communicator* comm = find(handle);
  if (!comm || !asyncError)
    return refuse(HCCL_E_PTR, "EI0003: no communicator, or null asyncError");
  comm->look_for_lost_peers();
  *asyncError = static_cast<HcclResult>(comm->async_error.load());
  return HCCL_SUCCESS;
}

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue) {
  return config == HCCL_DETERMINISTIC ? HCCL_SUCCESS
                                      : refuse(HCCL_E_PARA, "EI0003: unknown config");
}

uint32_t HcclGetCommConfigCapability() { return 5; }
HcclResult HcclCommSuspend(HcclComm handle) { return find(handle) ? HCCL_SUCCESS : HCCL_E_PTR; }
HcclResult HcclCommResume(HcclComm handle) { return find(handle) ? HCCL_SUCCESS : HCCL_E_PTR; }
}
