#include "npu/communicator.h"

#include <string>

#include "base/error.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

const Hccl& hccl() {
  static const Hccl* const api = [] {
    auto* const made = new Hccl;
    void* const library = hccl_library();
#define DANLU_HCCL_FILL(name, result, arguments) \
  made->name = reinterpret_cast<decltype(made->name)>(required_symbol(library, #name));
    DANLU_HCCL_FUNCTIONS(DANLU_HCCL_FILL)
#undef DANLU_HCCL_FILL
    return made;
  }();
  return *api;
}

void check_hccl(int code, const char* what) {
  if (code == kHcclOk) return;
  const char* const said = acl().aclGetRecentErrMsg();
  const char* const name = hccl().HcclGetErrorString(code);
  std::string text = said ? said : name ? name : "";
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  const std::string line = tr("[npu] {} failed with {}", what, code) + ": " + text;
  if (code == kHcclMemory || code == kHcclOutOfMemory) {
    throw MemoryError(line, tr("each group of ranks takes twice HCCL_BUFFSIZE (200 MB where it is "
                               "not set) of a card's memory"));
  }
  throw CommError(line, tr("a rank may have ended, or machines do not reach each other: look at "
                           "their logs, HCCL_SOCKET_IFNAME and firewalls"));
}

}  // namespace

HcclRootInfo new_root_info() {
  enter(entered() < 0 ? 0 : entered());
  HcclRootInfo root{};
  check_hccl(hccl().HcclGetRootInfo(&root), "HcclGetRootInfo");
  return root;
}

Communicator::Communicator(const HcclRootInfo& root, uint32_t size, uint32_t rank, int device)
    : device_(device) {
  // HCCL allows no two threads of a device to connect at once.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  enter(device);
  check_hccl(hccl().HcclCommInitRootInfo(size, &root, rank, &comm_), "HcclCommInitRootInfo");
  last_ = new_event();
}

Communicator::~Communicator() {
  try {
    const Entered here(device_);
    if (stream_) acl().aclrtSynchronizeStream(stream_);
    destroy(last_);
    hccl().HcclCommDestroy(comm_);
  } catch (const std::exception&) {  // the card is lost, and said so
  }
}

void Communicator::exchange(const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  std::vector<HcclSendRecvItem> items;
  for (const Transfer& transfer : transfers) {
    items.push_back({transfer.sends ? kHcclSend : kHcclReceive, transfer.memory, transfer.bytes,
                     kHcclUint8, transfer.peer});
  }
  const std::lock_guard lock(mutex_);
  const AclStream stream = stream_of(device_, current_stream(device_));
  if (stream_ && stream_ != stream) wait_for_event(stream, last_);
  note_launch("HcclBatchSendRecv");
  check_hccl(
      hccl().HcclBatchSendRecv(items.data(), static_cast<uint32_t>(items.size()), comm_, stream),
      "HcclBatchSendRecv");
  record(last_, stream);
  stream_ = stream;
}

}  // namespace danlu::npu
