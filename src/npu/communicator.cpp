#include "npu/communicator.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
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

std::atomic<int64_t>& counts_of(int device) {
  static auto* const all = new std::array<std::atomic<int64_t>, kMostDevices>{};
  return all->at(static_cast<size_t>(device));
}

void check_hccl(int code, const char* what) {
  if (code == kHcclOk) return;
  const char* const said = acl().aclGetRecentErrMsg();
  const char* const name = hccl().HcclGetErrorString(code);
  std::string text = said ? said : name ? name : "";
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  const std::string line =
      tr("[npu] {}: {} failed with {}", card_name(entered()), what, code) + ": " + text;
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

int64_t communicators_bytes(int device) {
  const char* const given = std::getenv("HCCL_BUFFSIZE");
  const int64_t mebibytes = given ? std::atoll(given) : 200;
  return counts_of(device) * 2 * (mebibytes << 20);
}

Communicator::Communicator(const HcclRootInfo& root, uint32_t size, uint32_t rank, int device)
    : device_(device), unwinding_(std::uncaught_exceptions()) {
  // HCCL allows no two threads of a device to connect at once.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  enter(device);
  check_hccl(hccl().HcclCommInitRootInfo(size, &root, rank, &comm_), "HcclCommInitRootInfo");
  ++counts_of(device);
}

Communicator::~Communicator() {
  // Where something failed an exchange may hang, and all that is of it; the process ends.
  if (std::uncaught_exceptions() > unwinding_) return;
  try {
    const Entered here(device_);
    if (stream_) acl().aclrtSynchronizeStream(stream_);
    for (const auto* marks : {&marks_, &spare_}) {
      for (const Mark& mark : *marks) {
        destroy(mark.begin);
        destroy(mark.end);
      }
    }
    hccl().HcclCommDestroy(comm_);
    --counts_of(device_);
  } catch (const std::exception&) {  // the card is lost, and said so
  }
}

void Communicator::forget_what_is_over() {
  while (!marks_.empty() && is_over(marks_.front().end)) {
    seen_.begun = seen_.over = marks_.front().number;
    spare_.push_back(marks_.front());
    marks_.pop_front();
  }
}

Communicator::Mark Communicator::new_mark() {
  constexpr size_t kMost = 64;
  const std::lock_guard lock(marks_mutex_);
  if (spare_.empty()) forget_what_is_over();
  std::deque<Mark>& from = marks_.size() < kMost ? spare_ : marks_;
  if (from.empty()) return {0, new_event(), new_event()};
  // Where too many are under way, the newest mark is used again: it stands for all that share it.
  const Mark mark = from.back();
  from.pop_back();
  return mark;
}

Communicator::Progress Communicator::progress() {
  int error = kHcclOk;
  if (hccl().HcclGetCommAsyncError(comm_, &error) != kHcclOk) error = kHcclOk;
  const std::lock_guard lock(marks_mutex_);
  try {
    const Entered here(device_);
    forget_what_is_over();
    if (!marks_.empty() && is_over(marks_.front().begin)) seen_.begun = marks_.front().number;
  } catch (const std::exception&) {  // the card is lost: who waits for it says so
  }
  Progress progress = seen_;
  if (error != kHcclOk) {
    const char* const name = hccl().HcclGetErrorString(error);
    progress.failure = tr("{}: HCCL says {} ({})", card_name(device_), name ? name : "?", error);
  }
  return progress;
}

void Communicator::exchange(const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  std::vector<HcclSendRecvItem> items;
  for (const Transfer& transfer : transfers) {
    items.push_back({transfer.sends ? kHcclSend : kHcclReceive, transfer.memory, transfer.bytes,
                     kHcclUint8, transfer.peer});
  }
  const std::lock_guard lock(mutex_);
  const AclStream asking = stream_of(device_, current_stream(device_));
  // No page allows two streams in one communicator: while one has an exchange, others' go there.
  if (!stream_ || is_over(last_)) stream_ = asking;
  const bool is_elsewhere = stream_ != asking;
  Mark mark = new_mark();
  record(mark.begin, asking);
  if (is_elsewhere) wait_for_event(stream_, mark.begin);
  note_launch("HcclBatchSendRecv");
  check_hccl(
      hccl().HcclBatchSendRecv(items.data(), static_cast<uint32_t>(items.size()), comm_, stream_),
      "HcclBatchSendRecv");
  record(mark.end, stream_);
  if (is_elsewhere) wait_for_event(asking, mark.end);
  mark.number = ++given_;
  last_ = mark.end;
  const std::lock_guard marks_lock(marks_mutex_);
  marks_.push_back(mark);
}

}  // namespace danlu::npu
