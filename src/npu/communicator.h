// npu/communicator.h: one of HCCL's communicators: bytes between the NPUs of several processes.
#pragma once
#include <cstddef>
#include <cstdint>
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

 private:
  const int device_;
  HcclComm comm_ = nullptr;
  std::mutex mutex_;
  AclEvent last_ = nullptr;  ///< the end of the exchange before: one after the other on any streams
  AclStream stream_ = nullptr;
};

}  // namespace danlu::npu
