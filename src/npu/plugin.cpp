// What the program calls of the plug-in: device/npu.cpp.
#include <c10/core/Device.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "device/memory.h"
#include "device/npu.h"
#include "npu/chips.h"
#include "npu/communicator.h"
#include "npu/context.h"
#include "npu/describe.h"
#include "npu/library.h"
#include "npu/memory.h"
#include "npu/streams.h"
#include "npu/table.h"
#include "ops/backend.h"

extern "C" {

/// The number of NPUs; `or_none`: 0 instead of an error where CANN or its cards are not there.
int danlu_npu_count(bool or_none) {
  using namespace danlu;
  if (or_none && !npu::cann_is_here()) return 0;
  try {
    const int count = npu::device_count();
    const std::string why_not = or_none && count > 0 ? npu::why_not_on(npu::chip_name()) : "";
    if (why_not.empty()) return count;
    log::notice("the NPUs are passed over: {}", why_not);
    return 0;
  } catch (const Error&) {
    if (or_none) return 0;
    throw;
  }
}

/// Starts the device, and fills its table the first time. Errors: DeviceError.
void danlu_npu_open(int index) {
  using namespace danlu;
  if (const std::string why_not = npu::why_not_on(npu::chip_name()); !why_not.empty()) {
    throw DeviceError("[npu] " + npu::card_name(index) + ": " + why_not,
                      tr("--device cpu computes without an NPU"));
  }
  npu::enter(index);
  npu::set_current_device(index);
  static const bool is_filled = [] {
    constexpr auto kNpu = c10::DeviceType::PrivateUse1;
    ops::set_backend(kNpu, npu::table());
    device::set_memory_counter(
        kNpu, {[](const c10::Device& d) { return npu::tensor_bytes(d.index()); },
               [](const c10::Device& d) { return npu::tensor_peak(d.index()); },
               [](const c10::Device& d) { npu::reset_tensor_peak(d.index()); },
               [](const c10::Device& d) { return npu::available_bytes(d.index()); }, nullptr});
    return true;
  }();
  static_cast<void>(is_filled);
}

/// "Ascend910B3", and whether that is the simulator of tests.
const char* danlu_npu_chip() { return danlu::npu::chip_name(); }
bool danlu_npu_is_simulated() { return !danlu::npu::simulator_version().empty(); }
void danlu_npu_memory(int index, size_t* free, size_t* total) {
  const danlu::npu::DeviceMemory memory = danlu::npu::device_memory(index);
  *free = memory.free;
  *total = memory.total;
}
/// For doctor/npu_engine.h: lines of a word, a tab and what it says.
const char* danlu_npu_describe() {
  static const std::string text = danlu::npu::description();
  return text.c_str();
}
int64_t danlu_npu_waits() { return danlu::npu::waits_so_far(); }
void danlu_npu_close() { danlu::npu::shut_down(); }

// For parallel/comm/hccl.cpp: 4108 bytes by which members of a group find each other; a member, and
// what it exchanges in the order of the calling thread's stream.
void danlu_npu_new_root(char* bytes) {
  const danlu::npu::HcclRootInfo root = danlu::npu::new_root_info();
  std::copy(root.internal.begin(), root.internal.end(), bytes);
}
void* danlu_npu_connect(const char* root_bytes, uint32_t size, uint32_t rank, int device) {
  danlu::npu::HcclRootInfo root{};
  std::copy(root_bytes, root_bytes + root.internal.size(), root.internal.begin());
  return new danlu::npu::Communicator(root, size, rank, device);
}
void danlu_npu_exchange(void* communicator,
                        const danlu::device::NpuCommunicator::Transfer* transfers, size_t count) {
  static_cast<danlu::npu::Communicator*>(communicator)->exchange({transfers, transfers + count});
}
/// What HCCL says of the links, "" for nothing, until the thread asks again.
const char* danlu_npu_progress(void* communicator, int64_t* begun, int64_t* over) {
  thread_local std::string failure;
  auto progress = static_cast<danlu::npu::Communicator*>(communicator)->progress();
  *begun = progress.begun;
  *over = progress.over;
  failure = std::move(progress.failure);
  return failure.c_str();
}
void danlu_npu_disconnect(void* communicator) {
  delete static_cast<danlu::npu::Communicator*>(communicator);
}

}  // extern "C"
