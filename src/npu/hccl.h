// npu/hccl.h: what of HCCL's C interface the plug-in calls, as hccl/hccl.h of CANN 8.1.RC1 declares
// it.
#pragma once
#include <array>
#include <cstdint>

#include "npu/acl.h"

namespace danlu::npu {

using HcclComm = void*;
struct HcclRootInfo {
  std::array<char, 4108> internal;
};

// HcclDataType (not aclDataType's numbers), HcclSendRecvType, HcclResult.
inline constexpr int kHcclUint8 = 7;
inline constexpr int kHcclSend = 0, kHcclReceive = 1;
inline constexpr int kHcclOk = 0, kHcclMemory = 3, kHcclTimeout = 9, kHcclOutOfMemory = 24;

struct HcclSendRecvItem {
  int type;
  void* buffer;
  uint64_t count;
  int data_type;
  uint32_t remote_rank;
};

#define DANLU_HCCL_FUNCTIONS(X)                                                      \
  X(HcclGetRootInfo, int, (HcclRootInfo*))                                           \
  X(HcclCommInitRootInfo, int, (uint32_t, const HcclRootInfo*, uint32_t, HcclComm*)) \
  X(HcclCommDestroy, int, (HcclComm))                                                \
  X(HcclBatchSendRecv, int, (HcclSendRecvItem*, uint32_t, HcclComm, AclStream))      \
  X(HcclGetCommAsyncError, int, (HcclComm, int*))                                    \
  X(HcclGetErrorString, const char*, (int))

struct Hccl {
#define DANLU_HCCL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  DANLU_HCCL_FUNCTIONS(DANLU_HCCL_MEMBER)
#undef DANLU_HCCL_MEMBER
};

}  // namespace danlu::npu
