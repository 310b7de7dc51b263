// npu/acl.h: what of CANN's C interface the plug-in calls: types, numbers and functions of AscendCL
// and libnnopbase, declared here because nothing of CANN is there when Danlu is built. Signatures
// and numbers as CANN 8.1.RC1's headers acl/*.h and aclnn/acl_meta.h have them.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclBoolArray;
struct aclTensorList;
struct aclOpExecutor;
}

namespace danlu::npu {

using AclStream = void*;
using AclEvent = void*;
using AclContext = void*;

// aclDataType.
inline constexpr int kAclUndefined = -1, kAclFloat = 0, kAclFloat16 = 1, kAclInt8 = 2,
                     kAclInt32 = 3, kAclUint8 = 4, kAclInt16 = 6, kAclInt64 = 9, kAclDouble = 11,
                     kAclBool = 12, kAclBf16 = 27;
inline constexpr int kAclFormatNd = 2;
// aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtMemAttr.
inline constexpr int kAclHugeFirst = 0;
inline constexpr int kAclHostToDevice = 1, kAclDeviceToHost = 2, kAclDeviceToDevice = 3;
inline constexpr int kAclHbm = 1;
inline constexpr uint32_t kAclEventSync = 0x1;
inline constexpr int kAclEventComplete = 1;   // aclrtEventRecordedStatus
inline constexpr int kAclStreamComplete = 0;  // aclrtStreamStatus
inline constexpr int kAclOptDeterministic = 0;
inline constexpr int kAclAttrBf16 = 1;  // aclCannAttr

// aclError and aclnnStatus.
inline constexpr int kAclOk = 0, kAclRepeatInitialize = 100002;

// Functions that every CANN since 8.0 has, and those the plug-in can do without: name, result,
// arguments.
#define DANLU_ACL_REQUIRED(X)                                                    \
  X(aclInit, int, (const char*))                                                 \
  X(aclFinalize, int, ())                                                        \
  X(aclGetRecentErrMsg, const char*, ())                                         \
  X(aclrtGetDeviceCount, int, (uint32_t*))                                       \
  X(aclrtSetDevice, int, (int32_t))                                              \
  X(aclrtResetDevice, int, (int32_t))                                            \
  X(aclrtSetCurrentContext, int, (AclContext))                                   \
  X(aclrtGetCurrentContext, int, (AclContext*))                                  \
  X(aclrtSynchronizeDevice, int, ())                                             \
  X(aclrtCreateStream, int, (AclStream*))                                        \
  X(aclrtDestroyStream, int, (AclStream))                                        \
  X(aclrtSynchronizeStream, int, (AclStream))                                    \
  X(aclrtStreamQuery, int, (AclStream, int*))                                    \
  X(aclrtStreamWaitEvent, int, (AclStream, AclEvent))                            \
  X(aclrtCreateEventExWithFlag, int, (AclEvent*, uint32_t))                      \
  X(aclrtDestroyEvent, int, (AclEvent))                                          \
  X(aclrtRecordEvent, int, (AclEvent, AclStream))                                \
  X(aclrtQueryEventStatus, int, (AclEvent, int*))                                \
  X(aclrtSynchronizeEvent, int, (AclEvent))                                      \
  X(aclrtMalloc, int, (void**, size_t, int))                                     \
  X(aclrtFree, int, (void*))                                                     \
  X(aclrtMallocHost, int, (void**, size_t))                                      \
  X(aclrtFreeHost, int, (void*))                                                 \
  X(aclrtMemcpyAsync, int, (void*, size_t, const void*, size_t, int, AclStream)) \
  X(aclrtMemsetAsync, int, (void*, size_t, int32_t, size_t, AclStream))          \
  X(aclrtGetMemInfo, int, (int, size_t*, size_t*))

#define DANLU_ACL_OPTIONAL(X)                             \
  X(aclrtGetSocName, const char*, ())                     \
  X(aclrtGetVersion, int, (int32_t*, int32_t*, int32_t*)) \
  X(aclGetCannAttribute, int, (int, int32_t*))            \
  X(aclrtSetSysParamOpt, int, (int, int64_t))             \
  X(aclrtSetOpWaitTimeout, int, (uint32_t))               \
  X(danlu_npu_simulator_version, const char*, ())

#define DANLU_ACL_META(X)                                                                   \
  X(aclCreateTensor, aclTensor*,                                                            \
    (const int64_t*, uint64_t, int, const int64_t*, int64_t, int, const int64_t*, uint64_t, \
     void*))                                                                                \
  X(aclCreateScalar, aclScalar*, (void*, int))                                              \
  X(aclCreateIntArray, aclIntArray*, (const int64_t*, uint64_t))                            \
  X(aclCreateBoolArray, aclBoolArray*, (const bool*, uint64_t))                             \
  X(aclCreateTensorList, aclTensorList*, (const aclTensor* const*, uint64_t))               \
  X(aclDestroyTensor, int, (const aclTensor*))                                              \
  X(aclDestroyScalar, int, (const aclScalar*))                                              \
  X(aclDestroyIntArray, int, (const aclIntArray*))                                          \
  X(aclDestroyBoolArray, int, (const aclBoolArray*))                                        \
  X(aclDestroyTensorList, int, (const aclTensorList*))

#define DANLU_ACL_META_OPTIONAL(X)                                           \
  X(aclSetAclOpExecutorRepeatable, int, (aclOpExecutor*))                    \
  X(aclDestroyAclOpExecutor, int, (aclOpExecutor*))                          \
  X(aclSetInputTensorAddr, int, (aclOpExecutor*, size_t, aclTensor*, void*)) \
  X(aclSetOutputTensorAddr, int, (aclOpExecutor*, size_t, aclTensor*, void*))

/// Pointers to them, filled once by npu/library.h.
struct Acl {
#define DANLU_ACL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  DANLU_ACL_REQUIRED(DANLU_ACL_MEMBER)
  DANLU_ACL_OPTIONAL(DANLU_ACL_MEMBER)
  DANLU_ACL_META(DANLU_ACL_MEMBER)
  DANLU_ACL_META_OPTIONAL(DANLU_ACL_MEMBER)
#undef DANLU_ACL_MEMBER
};

}  // namespace danlu::npu
