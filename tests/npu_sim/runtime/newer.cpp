// Functions of newer releases: the variant "old" is built without this file.
#include <cstdio>

#include "acl_api.h"
#include "core/machine.h"
#include "core/report.h"

using namespace npu_sim;

extern "C" {

aclError aclFinalizeReference(uint64_t* count) {
  uint64_t left = 0;
  {
    std::lock_guard hold(machine().lock);
    if (machine().references > 0) --machine().references;
    left = machine().references;
  }
  if (count) *count = left;
  return left == 0 ? aclFinalize() : 0;
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  const aclError error = aclrtSynchronizeDevice();
  return error ? error : aclrtFree(devPtr);
}

aclError aclsysGetVersionStr(char*, char* version) {
  if (!version) return fail(100000, "EH0001: null version");
  std::snprintf(version, 128, "9.0.0");
  return 0;
}

aclError aclsysGetVersionNum(char*, int32_t* version) {
  if (!version) return fail(100000, "EH0001: null version");
  *version = 9000000;
  return 0;
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  Context* context = nullptr;
  if (!stream) return fail(107000, "EE1001: The argument is invalid. null stream");
  if (const aclError error = enter("aclrtCtxGetCurrentDefaultStream", Need::kContext, &context))
    return error;
  *stream = context->default_stream;
  return 0;
}

aclError aclrtStreamStop(aclrtStream stream) { return aclrtStreamAbort(stream); }
}
