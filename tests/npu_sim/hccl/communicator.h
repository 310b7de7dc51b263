// A rank's side of a communicator.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "core/scheduler.h"
#include "hccl/wire.h"
#include "hccl_api.h"

namespace npu_sim::hccl {

struct Communicator {
  uint32_t rank = 0, size = 0;
  int socket = -1;
  int card = 0;
  std::string name;
  int64_t buffer_bytes = 0;  // what it takes of the card's memory at its first collective
  bool charged = false;
  std::atomic<int> pending = 0;
  std::atomic<uint32_t> stream = 0;  // of what is pending
  std::atomic<int> async_error = 0;  // HcclResult
  std::mutex talk;                   // one conversation with the hub at a time
  std::string broken;                // why nothing works any more

  /// In a stream's thread: sends this rank's part and waits for the answer. Throws TaskError:
  /// 107020 after the time that a collective may take, 507011 if the ranks' calls differ.
  std::string call(const Message& message);
  /// Looks whether the hub told of a lost rank, if nobody talks with it now.
  void look_for_lost_peers();
};

/// nullptr if the handle is no live communicator.
Communicator* find(HcclComm handle);
/// Fails with HCCL_E_RUNTIME where the runtime refused, and leaves its text.
HcclResult runtime_refused(aclError error);
HcclResult refuse(HcclResult code, const std::string& text);

}  // namespace npu_sim::hccl
