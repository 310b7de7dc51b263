// The collectives: each is a task of a stream.
#include <cstdio>
#include <cstring>

#include "core/config.h"
#include "core/memory.h"
#include "core/report.h"
#include "hccl/arithmetic.h"
#include "hccl/communicator.h"

using namespace npu_sim;
using namespace npu_sim::hccl;

namespace {

/// A piece of memory that a collective reads or writes.
struct Span {
  void* address = nullptr;
  uint64_t bytes = 0;
};

struct Plan {
  const char* name;
  Message message;         // without its payload
  std::vector<Span> send;  // joined, the payload
  std::vector<Span> take;  // what the answer fills, in its order
};

char* place(const Span& span) {
  const auto block = block_around(span.address, span.bytes);
  if (!block) throw TaskError{507035, "a buffer of a collective does not lie in memory of a card"};
  return block->data() + (reinterpret_cast<uintptr_t>(span.address) - block->begin());
}

void do_collective(Communicator* comm, const Plan& plan) {
  Message message = plan.message;
  for (const Span& span : plan.send) {
    if (span.bytes) message.payload.append(place(span), span.bytes);
  }
  // What comes in is garbage until it is there; what was read may lie at the same place.
  for (const Span& span : plan.take) {
    if (span.bytes) std::memset(place(span), kPoison, span.bytes);
  }
  const std::string answer = comm->call(message);
  size_t used = 0;
  for (const Span& span : plan.take) {
    if (used + span.bytes > answer.size())
      throw TaskError{507011, "the answer is shorter than the buffer"};
    if (span.bytes) std::memcpy(place(span), answer.data() + used, span.bytes);
    used += span.bytes;
  }
}

bool overlap(const Span& a, const Span& b) {
  const auto x = reinterpret_cast<uintptr_t>(a.address), y = reinterpret_cast<uintptr_t>(b.address);
  return x < y + b.bytes && y < x + a.bytes;
}

/// Rules for buffers that need no communicator's answer.
HcclResult check_buffers(const Plan& plan) {
  const size_t one = size_of(plan.message.head.dtype);
  for (const auto* spans : {&plan.send, &plan.take}) {
    for (const Span& span : *spans) {
      if (span.bytes && !span.address)
        return refuse(HCCL_E_PTR, std::string("EI0003: ") + plan.name + ": null buffer");
      if (one && reinterpret_cast<uintptr_t>(span.address) % one != 0) {
        return refuse(HCCL_E_PARA, std::string("EI0003: ") + plan.name +
                                       ": a buffer is not aligned to its elements");
      }
    }
  }
  const auto op = static_cast<Operation>(plan.message.head.operation);
  if ((op == Operation::kAllGather || op == Operation::kReduceScatter) &&
      overlap(plan.send[0], plan.take[0])) {
    std::fprintf(stderr,
                 "NPU SIMULATOR: %s with overlapping buffers: no page promises what that gives\n",
                 plan.name);
    count("hccl.overlapping");
    if (config().strict)
      return refuse(HCCL_E_PARA, std::string("EI0003: ") + plan.name + ": buffers overlap");
  }
  return HCCL_SUCCESS;
}

HcclResult take_buffers(Communicator* comm) {
  if (comm->charged) return HCCL_SUCCESS;
  if (charge(comm->card, comm->buffer_bytes)) {
    return refuse(HCCL_E_MEMORY, "EI0007: no memory for the buffers of a communicator, " +
                                     std::to_string(comm->buffer_bytes) + " bytes");
  }
  comm->charged = true;
  return HCCL_SUCCESS;
}

/// Counts a communicator's work until it ran, or was dropped.
class Pending {
 public:
  explicit Pending(Communicator* comm) : comm_(comm) { ++comm_->pending; }
  ~Pending() { finish(); }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  void finish() {
    if (!finished_.exchange(true)) --comm_->pending;
  }

 private:
  Communicator* comm_;
  std::atomic<bool> finished_ = false;
};

HcclResult enqueue_collective(Plan plan, HcclComm handle, aclrtStream stream_handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const aclError error = enter(plan.name, Need::kContext, &context))
    return runtime_refused(error);
  Communicator* comm = find(handle);
  if (!comm)
    return refuse(HCCL_E_PTR, std::string("EI0003: ") + plan.name + ": no such communicator");
  if (const aclError error = find_stream(context, stream_handle, &stream))
    return runtime_refused(error);
  if (comm->card != context->card)
    return refuse(HCCL_E_PARA, "EI0003: the communicator is another card's");
  if (const HcclResult bad = check_buffers(plan)) return bad;
  if (const HcclResult bad = take_buffers(comm)) return bad;
  if (comm->pending > 0 && comm->stream != stream->id) {
    violation(std::string(plan.name) + ": one communicator on two streams at a time");
  }
  comm->stream = stream->id;
  Task task;
  task.name = plan.name;
  int64_t sent = 0;
  for (const Span& span : plan.send) {
    if (span.bytes) task.ranges.push_back(reads(span.address, span.bytes));
    sent += static_cast<int64_t>(span.bytes);
  }
  for (const Span& span : plan.take) {
    if (span.bytes) task.ranges.push_back(writes(span.address, span.bytes));
  }
  count("hccl.calls");
  count(std::string("hccl.") + plan.name);
  count("hccl.bytes", sent);
  const auto pending = std::make_shared<Pending>(comm);
  task.work = [comm, plan = std::move(plan), pending] {
    struct Finally {
      Pending& pending;
      ~Finally() { pending.finish(); }
    } const finally{*pending};
    do_collective(comm, plan);
  };
  // An error CQE: HcclGetCommAsyncError tells of it, and the task waits on.
  task.lose_link = [comm] { comm->async_error = HCCL_E_REMOTE; };
  const aclError error = enqueue(stream, std::move(task));
  return error ? runtime_refused(error) : HCCL_SUCCESS;
}

Message message_of(Operation operation, HcclDataType dtype, uint64_t elements, uint32_t reduce = 0,
                   uint32_t root = 0) {
  Message message;
  message.head = {static_cast<uint32_t>(operation), static_cast<uint32_t>(dtype), reduce, root,
                  elements};
  return message;
}

HcclResult unknown_type(const char* name) {
  return refuse(HCCL_E_NOT_SUPPORT, std::string("EI0003: ") + name + ": unknown type");
}

HcclResult check_reduction(const char* name, HcclDataType dtype, HcclReduceOp op) {
  if (op < HCCL_REDUCE_SUM || op > HCCL_REDUCE_MIN)
    return refuse(HCCL_E_PARA, std::string("EI0003: ") + name + ": unknown reduction");
  if (can_reduce(dtype, op)) return HCCL_SUCCESS;
  return refuse(HCCL_E_NOT_SUPPORT, std::string("EI0003: ") + name + ": type " +
                                        std::to_string(dtype) + " is not reduced with " +
                                        std::to_string(op));
}

/// The sizes of a communicator, 0 if there is none.
uint32_t ranks_of(HcclComm handle) {
  const Communicator* comm = find(handle);
  return comm ? comm->size : 0;
}
uint32_t rank_of(HcclComm handle) {
  const Communicator* comm = find(handle);
  return comm ? comm->rank : 0;
}

HcclResult check_rank(const char* name, uint32_t rank, HcclComm handle) {
  if (!find(handle))
    return refuse(HCCL_E_PTR, std::string("EI0003: ") + name + ": no such communicator");
  if (rank < ranks_of(handle)) return HCCL_SUCCESS;
  return refuse(HCCL_E_PARA, std::string("EI0003: ") + name + ": rank " + std::to_string(rank) +
                                 " of " + std::to_string(ranks_of(handle)));
}

std::vector<uint64_t> numbers_at(const void* p, uint32_t n) {
  const auto* from = static_cast<const uint64_t*>(p);
  return std::vector<uint64_t>(from, from + n);
}

void append(std::vector<uint64_t>& to, const std::vector<uint64_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<Span> spans_of(void* base, const std::vector<uint64_t>& counts,
                           const std::vector<uint64_t>& begins, size_t one) {
  std::vector<Span> spans;
  for (size_t i = 0; i < counts.size(); ++i)
    spans.push_back({static_cast<char*>(base) + begins[i] * one, counts[i] * one});
  return spans;
}

/// Sends and receives that are asynchronous to each other; together they end when all have met
/// their partners.
HcclResult exchange(const char* name, const HcclSendRecvItem* items, uint32_t n, HcclComm comm,
                    aclrtStream stream) {
  if (!items || n == 0) return refuse(HCCL_E_PTR, std::string("EI0003: ") + name + ": no items");
  Plan plan{name, message_of(Operation::kExchange, HCCL_DATA_TYPE_INT8, 0), {}, {}};
  for (uint32_t i = 0; i < n; ++i) {
    const HcclSendRecvItem& item = items[i];
    if (const HcclResult bad = check_rank(name, item.remoteRank, comm)) return bad;
    if (item.remoteRank == rank_of(comm))
      return refuse(HCCL_E_PARA, std::string("EI0003: ") + name + ": to oneself");
    if (size_of(item.dataType) == 0) return unknown_type(name);
    const bool receives = item.sendRecvType == HCCL_RECV;
    append(plan.message.numbers,
           {receives, item.remoteRank, item.count, static_cast<uint64_t>(item.dataType)});
    (receives ? plan.take : plan.send).push_back({item.buf, item.count * size_of(item.dataType)});
  }
  return enqueue_collective(std::move(plan), comm, stream);
}

}  // namespace

extern "C" {

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t elements, HcclDataType dataType,
                         HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  if (const HcclResult bad = check_reduction("HcclAllReduce", dataType, op)) return bad;
  const uint64_t bytes = elements * size_of(dataType);
  return enqueue_collective({"HcclAllReduce",
                             message_of(Operation::kAllReduce, dataType, elements, op),
                             {{sendBuf, bytes}},
                             {{recvBuf, bytes}}},
                            comm, stream);
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t elements, HcclDataType dataType,
                      HcclReduceOp op, uint32_t root, HcclComm comm, aclrtStream stream) {
  if (const HcclResult bad = check_reduction("HcclReduce", dataType, op)) return bad;
  if (const HcclResult bad = check_rank("HcclReduce", root, comm)) return bad;
  const uint64_t bytes = elements * size_of(dataType);
  std::vector<Span> take;
  if (rank_of(comm) == root) take.push_back({recvBuf, bytes});
  return enqueue_collective({"HcclReduce",
                             message_of(Operation::kReduce, dataType, elements, op, root),
                             {{sendBuf, bytes}},
                             take},
                            comm, stream);
}

HcclResult HcclBroadcast(void* buf, uint64_t elements, HcclDataType dataType, uint32_t root,
                         HcclComm comm, aclrtStream stream) {
  if (size_of(dataType) == 0) return unknown_type("HcclBroadcast");
  if (const HcclResult bad = check_rank("HcclBroadcast", root, comm)) return bad;
  const Span span{buf, elements * size_of(dataType)};
  Plan plan{
      "HcclBroadcast", message_of(Operation::kBroadcast, dataType, elements, 0, root), {}, {span}};
  if (rank_of(comm) == root) plan.send.push_back(span);
  return enqueue_collective(std::move(plan), comm, stream);
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType,
                         HcclComm comm, aclrtStream stream) {
  if (size_of(dataType) == 0) return unknown_type("HcclAllGather");
  const uint64_t bytes = sendCount * size_of(dataType);
  return enqueue_collective({"HcclAllGather",
                             message_of(Operation::kAllGather, dataType, sendCount),
                             {{sendBuf, bytes}},
                             {{recvBuf, bytes * ranks_of(comm)}}},
                            comm, stream);
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount,
                             HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream) {
  if (const HcclResult bad = check_reduction("HcclReduceScatter", dataType, op)) return bad;
  const uint64_t bytes = recvCount * size_of(dataType);
  return enqueue_collective({"HcclReduceScatter",
                             message_of(Operation::kReduceScatter, dataType, recvCount, op),
                             {{sendBuf, bytes * ranks_of(comm)}},
                             {{recvBuf, bytes}}},
                            comm, stream);
}

HcclResult HcclAllGatherV(void* sendBuf, uint64_t sendCount, void* recvBuf, const void* recvCounts,
                          const void* recvDispls, HcclDataType dataType, HcclComm comm,
                          aclrtStream stream) {
  if (size_of(dataType) == 0) return unknown_type("HcclAllGatherV");
  if (!recvCounts || !recvDispls) return refuse(HCCL_E_PTR, "EI0003: HcclAllGatherV: null counts");
  const uint32_t n = ranks_of(comm);
  const std::vector<uint64_t> counts = numbers_at(recvCounts, n),
                              begins = numbers_at(recvDispls, n);
  Plan plan{"HcclAllGatherV",
            message_of(Operation::kAllGatherV, dataType, 0),
            {{sendBuf, sendCount * size_of(dataType)}},
            spans_of(recvBuf, counts, begins, size_of(dataType))};
  plan.message.numbers = {sendCount};
  append(plan.message.numbers, counts);
  return enqueue_collective(std::move(plan), comm, stream);
}

HcclResult HcclReduceScatterV(void* sendBuf, const void* sendCounts, const void* sendDispls,
                              void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                              HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  if (const HcclResult bad = check_reduction("HcclReduceScatterV", dataType, op)) return bad;
  if (!sendCounts || !sendDispls)
    return refuse(HCCL_E_PTR, "EI0003: HcclReduceScatterV: null counts");
  const uint32_t n = ranks_of(comm);
  const size_t one = size_of(dataType);
  Plan plan{"HcclReduceScatterV",
            message_of(Operation::kReduceScatterV, dataType, 0, op),
            {},
            {{recvBuf, recvCount * one}}};
  plan.message.numbers = numbers_at(sendCounts, n);
  const std::vector<uint64_t> begins = numbers_at(sendDispls, n);
  if (n && plan.message.numbers[rank_of(comm)] != recvCount)
    return refuse(HCCL_E_PARA, "EI0003: HcclReduceScatterV: recvCount is not this rank's");
  uint64_t end = 0;
  for (uint32_t i = 0; i < n; ++i) end = std::max(end, begins[i] + plan.message.numbers[i]);
  append(plan.message.numbers, begins);
  plan.send.push_back({sendBuf, end * one});
  return enqueue_collective(std::move(plan), comm, stream);
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType,
                       uint32_t root, HcclComm comm, aclrtStream stream) {
  if (size_of(dataType) == 0) return unknown_type("HcclScatter");
  if (const HcclResult bad = check_rank("HcclScatter", root, comm)) return bad;
  const uint64_t bytes = recvCount * size_of(dataType);
  Plan plan{"HcclScatter",
            message_of(Operation::kScatter, dataType, recvCount, 0, root),
            {},
            {{recvBuf, bytes}}};
  if (rank_of(comm) == root) plan.send.push_back({sendBuf, bytes * ranks_of(comm)});
  return enqueue_collective(std::move(plan), comm, stream);
}

HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, HcclComm comm,
                         aclrtStream stream) {
  if (size_of(sendType) == 0) return unknown_type("HcclAlltoAllV");
  if (sendType != recvType) return refuse(HCCL_E_PARA, "EI0003: HcclAlltoAllV: the types differ");
  if (!sendCounts || !sdispls || !recvCounts || !rdispls)
    return refuse(HCCL_E_PTR, "EI0003: HcclAlltoAllV: null counts");
  const uint32_t n = ranks_of(comm);
  const size_t one = size_of(sendType);
  const std::vector<uint64_t> give = numbers_at(sendCounts, n), take = numbers_at(recvCounts, n);
  Plan plan{"HcclAlltoAllV", message_of(Operation::kAlltoAllV, sendType, 0),
            spans_of(const_cast<void*>(sendBuf), give, numbers_at(sdispls, n), one),
            spans_of(const_cast<void*>(recvBuf), take, numbers_at(rdispls, n), one)};
  plan.message.numbers = give;
  append(plan.message.numbers, take);
  return enqueue_collective(std::move(plan), comm, stream);
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        HcclComm comm, aclrtStream stream) {
  if (sendCount != recvCount) return refuse(HCCL_E_PARA, "EI0003: HcclAlltoAll: counts differ");
  const uint32_t n = ranks_of(comm);
  const std::vector<uint64_t> counts(n, sendCount);
  std::vector<uint64_t> begins;
  for (uint32_t i = 0; i < n; ++i) begins.push_back(i * sendCount);
  return HcclAlltoAllV(sendBuf, counts.data(), begins.data(), sendType, recvBuf, counts.data(),
                       begins.data(), recvType, comm, stream);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t itemNum, HcclComm comm,
                             aclrtStream stream) {
  return exchange("HcclBatchSendRecv", items, itemNum, comm, stream);
}

HcclResult HcclSend(void* sendBuf, uint64_t elements, HcclDataType dataType, uint32_t destRank,
                    HcclComm comm, aclrtStream stream) {
  const HcclSendRecvItem item{HCCL_SEND, sendBuf, elements, dataType, destRank};
  return exchange("HcclSend", &item, 1, comm, stream);
}

HcclResult HcclRecv(void* recvBuf, uint64_t elements, HcclDataType dataType, uint32_t srcRank,
                    HcclComm comm, aclrtStream stream) {
  const HcclSendRecvItem item{HCCL_RECV, recvBuf, elements, dataType, srcRank};
  return exchange("HcclRecv", &item, 1, comm, stream);
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return enqueue_collective(
      {"HcclBarrier", message_of(Operation::kBarrier, HCCL_DATA_TYPE_INT8, 0), {}, {}}, comm,
      stream);
}
}
