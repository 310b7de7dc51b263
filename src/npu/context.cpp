#include "npu/context.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "npu/kept_plans.h"
#include "npu/library.h"
#include "npu/memory.h"
#include "npu/staging.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

/// Names the variables of torch_npu that the environment sets and this program has no use for.
void name_idle_variables() {
  std::string set;
  for (const char* name :
       {"TASK_QUEUE_ENABLE", "PYTORCH_NPU_ALLOC_CONF", "MULTI_STREAM_MEMORY_REUSE",
        "COMBINED_ENABLE", "INF_NAN_MODE_ENABLE", "ACL_DEVICE_SYNC_TIMEOUT"}) {
    const char* const value = std::getenv(name);
    const bool is_off = value && std::string(name) == "TASK_QUEUE_ENABLE" && *value == '0';
    if (value && !is_off) set += (set.empty() ? "" : ", ") + std::string(name);
  }
  if (set.empty()) return;
  log::notice(
      "{}: without effect, they are torch_npu's; the thread that computes gives NPUs their work, "
      "and their memory is kept in pieces of fixed sizes",
      set);
}

/// Seconds that a card waits for an event, as torch_npu has them: longer than HCCL_EXEC_TIMEOUT.
uint32_t event_timeout() {
  constexpr uint32_t kOtherwise = 1868;
  const char* const given = std::getenv("HCCL_EVENT_TIMEOUT");
  if (!given) return kOtherwise;
  const std::string_view text = given;
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(tr("HCCL_EVENT_TIMEOUT={}: must be a whole number of seconds", text),
                     tr("leave it out for {} s", kOtherwise));
  }
  return seconds;
}

/// AscendCL, started once. Another library of the process may have done so before.
struct Started {
  bool is_ours = false;
  int count = 0;

  Started() {
    const int code = acl().aclInit(nullptr);
    if (code != kAclRepeatInitialize) {
      check(code, "aclInit");
      is_ours = true;
    }
    uint32_t found = 0;
    check(acl().aclrtGetDeviceCount(&found), "aclrtGetDeviceCount");
    count = std::min(static_cast<int>(found), kMostDevices);
    if (acl().aclrtSetOpWaitTimeout)
      check(acl().aclrtSetOpWaitTimeout(event_timeout()), "aclrtSetOpWaitTimeout");
    name_idle_variables();
    if (!simulator_version().empty()) {
      log::write_plain(
          tr("NPU SIMULATOR: results are computed on the CPU ({})", simulator_version()));
    }
  }
};

Started& started() {
  static auto* const one = new Started;
  return *one;
}

struct Contexts {
  std::mutex mutex;
  std::array<std::atomic<AclContext>, kMostDevices> all{};
};
Contexts& contexts() {
  static auto* const one = new Contexts;
  return *one;
}

thread_local int entered_device = -1;

/// The default context of a device, which all threads share. The thread that makes it has entered
/// it.
AclContext context_of(int device) {
  Contexts& known = contexts();
  std::atomic<AclContext>& own = known.all[static_cast<size_t>(device)];
  if (AclContext const context = own.load()) return context;
  const std::lock_guard lock(known.mutex);
  if (AclContext const context = own.load()) return context;
  check(acl().aclrtSetDevice(device), "aclrtSetDevice");
  AclContext context = nullptr;
  check(acl().aclrtGetCurrentContext(&context), "aclrtGetCurrentContext");
  // Sums in an order of their own on every run would make runs differ.
  if (acl().aclrtSetSysParamOpt)
    check(acl().aclrtSetSysParamOpt(kAclOptDeterministic, 1), "aclrtSetSysParamOpt");
  own = context;
  return context;
}

}  // namespace

int device_count() { return started().count; }

int entered() { return entered_device; }

std::string card_name(int device) {
  if (device < 0) return "npu";
  std::string name = "npu:" + std::to_string(device);
  const char* const visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  std::istringstream list(visible ? visible : "");
  std::string number;
  for (int i = 0; i <= device && std::getline(list, number, ','); ++i) {
    if (i == device && number != std::to_string(device)) name += " (" + tr("card {}", number) + ")";
  }
  return name;
}

void enter(int device) {
  if (device == entered_device) return;
  if (device < 0 || device >= device_count()) {
    throw DeviceError(tr("[npu] there is no npu:{}: this process sees {}", device, device_count()),
                      tr("npu-smi info lists the cards; ASCEND_RT_VISIBLE_DEVICES hides some"));
  }
  check(acl().aclrtSetCurrentContext(context_of(device)), "aclrtSetCurrentContext");
  entered_device = device;
}

Entered::~Entered() {
  if (before_ < 0 || before_ == entered_device) return;
  try {
    enter(before_);
  } catch (const Error&) {  // it was entered before: the card is lost, and the next call says so
  }
}

DeviceMemory device_memory(int device) {
  const Entered here(device);
  DeviceMemory memory;
  check(acl().aclrtGetMemInfo(kAclHbm, &memory.free, &memory.total), "aclrtGetMemInfo");
  return memory;
}

const char* chip_name() {
  const char* const name = acl().aclrtGetSocName ? acl().aclrtGetSocName() : nullptr;
  return name ? name : "";
}

void synchronize(int device) {
  const Entered here(device);
  check(acl().aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
}

void shut_down() {
  for (int device = 0; device < kMostDevices; ++device) {
    if (!contexts().all[static_cast<size_t>(device)]) continue;
    enter(device);
    acl().aclrtSynchronizeDevice();
  }
  forget_plans();
  for (int device = 0; device < kMostDevices; ++device) {
    if (!contexts().all[static_cast<size_t>(device)]) continue;
    enter(device);
    close_staging(device);
    close_memory(device);
    destroy_streams(device);
    acl().aclrtResetDevice(device);
    contexts().all[static_cast<size_t>(device)] = nullptr;
  }
  entered_device = -1;
  if (started().is_ours) acl().aclFinalize();
}

bool launches_block() {
  static const bool blocks = [] {
    const char* const value = std::getenv("ASCEND_LAUNCH_BLOCKING");
    return value && std::string(value) == "1";
  }();
  return blocks;
}

}  // namespace danlu::npu
