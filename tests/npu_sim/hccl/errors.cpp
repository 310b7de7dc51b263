// Names of HCCL's results.
#include "hccl_api.h"

extern "C" const char* HcclGetErrorString(HcclResult code) {
  static const char* const kNames[] = {"no error",
                                       "parameter error",
                                       "empty pointer",
                                       "memory error",
                                       "internal error",
                                       "not supported",
                                       "not found",
                                       "unavailable",
                                       "system call",
                                       "timeout",
                                       "open file failed",
                                       "tcp connect failed",
                                       "roce connect failed",
                                       "tcp transfer failed",
                                       "roce transfer failed",
                                       "runtime api failed",
                                       "driver api failed",
                                       "profiling failed",
                                       "cce api failed",
                                       "network failed",
                                       "try again",
                                       "remote error",
                                       "suspending"};
  const auto i = static_cast<unsigned>(code);
  return i < sizeof kNames / sizeof *kNames ? kNames[i] : "unknown error";
}
