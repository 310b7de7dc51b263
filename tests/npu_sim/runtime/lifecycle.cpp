// aclInit … aclFinalize, devices and contexts.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "acl_api.h"
#include "core/machine.h"
#include "core/memory.h"
#include "core/report.h"
#include "npu_sim.h"

using namespace npu_sim;

namespace {

constexpr int kLeakStatus = 97;

/// What the program forgot, on stderr. True if anything.
bool report_leaks() {
  struct {
    const char* what;
    int64_t count;
  } const left[] = {{"streams", live_streams()},
                    {"events", live_events()},
                    {"blocks of device memory", live_blocks()},
                    {"tensors", alive("tensors")},
                    {"executors", alive("executors")}};
  bool any = false;
  for (const auto& kind : left) {
    if (kind.count == 0) continue;
    any = true;
    std::fprintf(stderr, "NPU SIMULATOR: aclFinalize: %lld %s were never given back\n",
                 static_cast<long long>(kind.count), kind.what);
  }
  return any;
}

bool is_card(int32_t id) { return id >= 0 && static_cast<size_t>(id) < config().cards.size(); }

aclError no_card(const char* function, int32_t id) {
  return fail(107001, std::string("EE1001: The argument is invalid. ") + function + ": device " +
                          std::to_string(id) + " of " + std::to_string(config().cards.size()));
}

}  // namespace

extern "C" {

aclError aclInit(const char*) {
  announce();
  if (const aclError error = enter("aclInit", Need::kNothing)) return error;
  {
    std::lock_guard hold(machine().lock);
    ++machine().references;
    if (machine().finalised) return fail(100001, "EH0001: aclInit after aclFinalize");
    if (machine().initialised) return fail(100002, "EH0001: aclInit was called before");
    machine().initialised = true;
  }
  static const bool once = [] {
    std::atexit(write_counters_file);
    return true;
  }();
  (void)once;
  return 0;
}

aclError aclFinalize() {
  {
    std::lock_guard hold(machine().lock);
    if (machine().finalised) return fail(100037, "EH0001: aclFinalize was called before");
  }
  if (const aclError error = enter("aclFinalize", Need::kInit)) return error;
  {
    std::lock_guard hold(machine().lock);
    machine().finalised = true;
    machine().references = 0;
  }
  const bool leaks = report_leaks();
  write_counters_file();  // who ends by _exit calls no function of atexit
  if (leaks && config().strict) _exit(kLeakStatus);
  return 0;
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  if (!major || !minor || !patch) return fail(100000, "EH0001: null argument");
  *major = 1;
  *minor = kOldVariant ? 8 : 13;
  *patch = 0;
  return 0;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  if (!version || name != ACL_PKG_NAME_CANN) return fail(100000, "EH0001: invalid argument");
  std::memset(version, 0, sizeof *version);
  std::strcpy(version->version, kOldVariant ? "8.0.0" : "8.1.RC1");
  std::strcpy(version->majorVersion, "8");
  std::strcpy(version->minorVersion, kOldVariant ? "0" : "1");
  std::strcpy(version->releaseVersion, kOldVariant ? "0" : "RC1");
  return 0;
}

const char* aclGetRecentErrMsg() { return take_message(); }
const char* aclrtGetSocName() { return config().chip.name; }

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (!count) return fail(107000, "EE1001: The argument is invalid. null count");
  if (const aclError error = enter("aclrtGetDeviceCount", Need::kNothing)) return error;
  *count = static_cast<uint32_t>(config().cards.size());
  return 0;
}

aclError aclrtSetDevice(int32_t deviceId) {
  const aclError error = enter("aclrtSetDevice", Need::kInit);
  return error ? error : set_device(deviceId);
}

aclError aclrtResetDevice(int32_t deviceId) {
  const aclError error = enter("aclrtResetDevice", Need::kInit);
  return error ? error : reset_device(deviceId, false);
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  const aclError error = enter("aclrtResetDeviceForce", Need::kInit);
  return error ? error : reset_device(deviceId, true);
}

aclError aclrtGetDevice(int32_t* deviceId) {
  Context* context = nullptr;
  if (!deviceId) return fail(107000, "EE1001: The argument is invalid. null deviceId");
  if (const aclError error = enter("aclrtGetDevice", Need::kContext, &context)) return error;
  *deviceId = context->card;
  return 0;
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  if (!runMode) return fail(107000, "EE1001: The argument is invalid. null runMode");
  *runMode = ACL_HOST;
  return 0;
}

aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* status) {
  if (!status) return fail(107000, "EE1001: The argument is invalid. null status");
  if (!is_card(deviceId)) return no_card("aclrtQueryDeviceStatus", deviceId);
  std::lock_guard hold(machine().lock);
  *status =
      machine().dead.count(deviceId) ? ACL_RT_DEVICE_STATUS_ABNORMAL : ACL_RT_DEVICE_STATUS_NORMAL;
  return 0;
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  Context* context = nullptr;
  if (const aclError error = enter("aclrtSynchronizeDevice", Need::kContext, &context))
    return error;
  count("synchronise.device");
  count("synchronisations");
  const aclError error = wait_for_context(context, timeout_ms);
  check_red_zones();
  return error;
}

aclError aclrtSynchronizeDevice(void) { return aclrtSynchronizeDeviceWithTimeout(-1); }

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  if (!context) return fail(107000, "EE1001: The argument is invalid. null context");
  if (const aclError error = enter("aclrtCreateContext", Need::kInit)) return error;
  if (!is_card(deviceId)) return no_card("aclrtCreateContext", deviceId);
  return create_context(deviceId, context);
}

aclError aclrtDestroyContext(aclrtContext context) {
  const aclError error = enter("aclrtDestroyContext", Need::kInit);
  return error ? error : destroy_context(context);
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  const aclError error = enter("aclrtSetCurrentContext", Need::kInit);
  return error ? error : set_current_context(context);
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  if (!context) return fail(107000, "EE1001: The argument is invalid. null context");
  Context* mine = nullptr;
  if (const aclError error = enter("aclrtGetCurrentContext", Need::kContext, &mine)) return error;
  *context = mine;
  return 0;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  Context* context = nullptr;
  if (const aclError error = enter("aclrtCtxSetSysParamOpt", Need::kContext, &context))
    return error;
  std::lock_guard hold(machine().lock);
  if (opt == ACL_OPT_DETERMINISTIC) context->deterministic = value;
  return 0;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  if (const aclError error = enter("aclrtSetSysParamOpt", Need::kInit)) return error;
  if (opt == ACL_OPT_DETERMINISTIC) set_deterministic(value);
  return 0;
}

aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
  if (!can) return fail(107000, "EE1001: The argument is invalid. null argument");
  if (!is_card(device) || !is_card(peer)) return no_card("aclrtDeviceCanAccessPeer", peer);
  *can = device != peer;
  return 0;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) {
  if (const aclError error = enter("aclrtDeviceEnablePeerAccess", Need::kContext)) return error;
  return is_card(peer) ? 0 : no_card("aclrtDeviceEnablePeerAccess", peer);
}
}
