// npu/context.h: the NPUs of this process, and which of them a thread works on.
#pragma once
#include <cstddef>
#include <string>

#include "npu/acl.h"

namespace danlu::npu {

inline constexpr int kMostDevices = 16;

/// How many NPUs this process sees (ASCEND_RT_VISIBLE_DEVICES hides some). The first call starts
/// AscendCL. Errors: DeviceError where CANN or its driver does not start.
int device_count();

/// Makes the device's context the calling thread's: AscendCL answers no other call in a thread that
/// has none. Errors: DeviceError for a number that no device has, or a card that does not start.
void enter(int device);
/// The one that the thread has entered, -1: none.
int entered();

/// "npu:0", or "npu:0 (card 5)" where ASCEND_RT_VISIBLE_DEVICES numbers the cards anew; -1: "npu".
std::string card_name(int device);

/// Enters a device for as long as it lives.
class Entered {
 public:
  explicit Entered(int device) : before_(entered()) { enter(device); }
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  int before_;
};

struct DeviceMemory {
  size_t free = 0, total = 0;  ///< bytes
};
DeviceMemory device_memory(int device);

/// "Ascend910B3", or "" where CANN does not say.
const char* chip_name();

/// Waits until the device has done everything. Errors: what failed on it.
void synchronize(int device);

/// Gives the devices back, at the end of a program: nothing of them may be used any more.
void shut_down();

/// ASCEND_LAUNCH_BLOCKING=1: each operator is waited for, so that an error names it.
bool launches_block();

}  // namespace danlu::npu
