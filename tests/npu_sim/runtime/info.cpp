// Questions about the chip, limits of time, overflow and the errors of a thread.
#include <cstring>

#include "acl_api.h"
#include "core/machine.h"
#include "core/memory.h"
#include "core/numbers.h"
#include "core/report.h"

using namespace npu_sim;

extern "C" {

aclError aclGetCannAttribute(aclCannAttr attr, int32_t* value) {
  if (!value) return fail(100000, "EH0001: null value");
  if (attr == ACL_CANN_ATTR_INF_NAN) *value = config().chip.has_infinity();
  if (attr == ACL_CANN_ATTR_BF16) *value = config().chip.has_bf16();
  if (attr == ACL_CANN_ATTR_JIT_COMPILE) *value = 1;
  return attr <= ACL_CANN_ATTR_JIT_COMPILE ? 0 : fail(100000, "EH0001: unknown attribute");
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo info, int64_t* value) {
  if (!value || deviceId >= config().cards.size()) return fail(100000, "EH0001: invalid argument");
  if (info == ACL_DEVICE_INFO_AI_CORE_NUM) *value = config().chip.cube_cores;
  if (info == ACL_DEVICE_INFO_VECTOR_CORE_NUM) *value = config().chip.vector_cores;
  if (info == ACL_DEVICE_INFO_L2_SIZE) *value = config().chip.l2_bytes;
  return 0;
}

aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
  Context* context = nullptr;
  if (!free || !total) return fail(107000, "EE1001: The argument is invalid. null argument");
  if (const aclError error = enter("aclrtGetMemInfo", Need::kContext, &context)) return error;
  memory_info(context->card, free, total);
  return 0;
}

aclError aclrtSetOpWaitTimeout(uint32_t seconds) {
  if (const aclError error = enter("aclrtSetOpWaitTimeout", Need::kInit)) return error;
  std::lock_guard hold(machine().lock);
  machine().wait_timeout_ms = static_cast<int64_t>(seconds) * 1000;
  return 0;
}

aclError aclrtSetOpExecuteTimeOut(uint32_t) {
  return enter("aclrtSetOpExecuteTimeOut", Need::kInit);
}
aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t) {
  return enter("aclrtSetOpExecuteTimeOutWithMs", Need::kInit);
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  if (const aclError error = enter("aclrtSetDeviceSatMode", Need::kContext)) return error;
  const bool infinity = config().chip.has_infinity();
  if ((mode == ACL_RT_OVERFLOW_MODE_INFNAN) == infinity) return 0;
  return fail(207000, "EE9999: this overflow mode is not simulated for this chip");
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  if (!mode) return fail(107000, "EE1001: The argument is invalid. null mode");
  if (const aclError error = enter("aclrtGetDeviceSatMode", Need::kContext)) return error;
  *mode =
      config().chip.has_infinity() ? ACL_RT_OVERFLOW_MODE_INFNAN : ACL_RT_OVERFLOW_MODE_SATURATION;
  return 0;
}

aclError aclrtGetOverflowStatus(void* outputAddr, size_t outputSize, aclrtStream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const aclError error = enter("aclrtGetOverflowStatus", Need::kContext, &context))
    return error;
  if (outputSize != 64)
    return fail(107000, "EE1001: The argument is invalid. outputSize must be 64");
  if (const aclError error = find_stream(context, handle, &stream)) return error;
  Task task;
  task.name = "aclrtGetOverflowStatus";
  task.ranges = {writes(outputAddr, 64)};
  task.work = [outputAddr] {
    const auto block = block_around(outputAddr, 64);
    if (!block) throw TaskError{507035, "the output does not lie in memory of a card"};
    char* to = block->data() + (reinterpret_cast<uintptr_t>(outputAddr) - block->begin());
    std::memset(to, 0, 64);
    to[0] = overflow_flag(false);
  };
  return enqueue(stream, std::move(task));
}

aclError aclrtResetOverflowStatus(aclrtStream handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (const aclError error = enter("aclrtResetOverflowStatus", Need::kContext, &context))
    return error;
  if (const aclError error = find_stream(context, handle, &stream)) return error;
  Task task;
  task.name = "aclrtResetOverflowStatus";
  task.work = [] { overflow_flag(true); };
  return enqueue(stream, std::move(task));
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return last_error(false); }
aclError aclrtGetLastError(aclrtLastErrLevel) { return last_error(true); }
size_t aclDataTypeSize(aclDataType dataType) { return size_of(dataType); }
float aclFloat16ToFloat(aclFloat16 value) { return f16_to_float(value); }
aclFloat16 aclFloatToFloat16(float value) { return float_to_f16(value); }
}
