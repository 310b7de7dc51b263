// npu/communicator.h: one of HCCL's communicators: bytes between the NPUs of several processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "device/npu.h"
#include "npu/hccl.h"

namespace danlu::npu {

/// By which members find each other; one makes it, and all are told. Errors: DeviceError where CANN
/// has no HCCL, CommError with what HCCL says.
HcclRootInfo new_root_info();

class Communicator {
 public:
  /// Waits for all members. Errors: as above.
  Communicator(const HcclRootInfo& root, uint32_t size, uint32_t rank, int device);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  using Transfer = device::NpuCommunicator::Transfer;
  /// Gives the transfers, of which every one has its other side at the peer, to the calling
  /// thread's current stream. The host does not wait.
  void exchange(const std::vector<Transfer>& transfers);

  using Progress = device::NpuCommunicator::Progress;
  /// From any thread: it asks and does not wait. A card that does not answer says so elsewhere.
  Progress progress();

 private:
  /// Where in a stream an exchange begins and ends.
  struct Mark {
    int64_t number;
    AclEvent begin, end;
  };
  Mark new_mark();
  void forget_what_is_over();

  const int device_;
  const int unwinding_;  ///< exceptions under way when it was made
  HcclComm comm_ = nullptr;
  std::mutex mutex_;
  AclEvent last_ = nullptr;  ///< the end of the exchange before: one after the other on any streams
  AclStream stream_ = nullptr;
  std::mutex marks_mutex_;  ///< never held while HCCL works
  std::deque<Mark> marks_, spare_;
  Progress seen_;
  int64_t given_ = 0;
};

/// Bytes of a device that HCCL has for its communicators, by HCCL_BUFFSIZE: about.
int64_t communicators_bytes(int device);

}  // namespace danlu::npu
