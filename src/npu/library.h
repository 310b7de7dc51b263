// npu/library.h: CANN's libraries, opened when the first NPU is asked for.
#pragma once
#include <string>

#include "npu/acl.h"

namespace danlu::npu {

/// Opens AscendCL and libnnopbase on the first call. Where they are looked for: the folder (or the
/// one library) that DANLU_NPU_LIBRARY names; else by name, as the loader finds them; else in
/// ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME and where CANN installs itself. Errors: DeviceError naming
/// what cannot be opened, and the set_env.sh to source.
const Acl& acl();

/// Whether there is something to open: a folder that a variable names or CANN's own, or a library
/// that the loader finds. Opens nothing that was not opened anyway.
bool cann_is_here();

/// A function of the operators' libraries; null: none has it. In this order: libcust_opapi.so of
/// ASCEND_CUSTOM_OPP_PATH and of ASCEND_OPP_PATH's vendors, then the split libopapi_*.so, or
/// libopapi.so where these are not: never both.
void* operator_symbol(const char* name);

/// HCCL's library, and what it must have. Errors: DeviceError naming what is missing.
void* hccl_library();
void* required_symbol(void* library, const char* name);

/// The version that the simulator of tests says it has; empty: this is CANN.
const std::string& simulator_version();

}  // namespace danlu::npu
