// npu/status.h: CANN's return codes as Danlu's errors.
#pragma once
#include <string>

#include "base/error.h"

namespace danlu::npu {

/// The error that a code of AscendCL, aclnn or HCCL's stream tasks is: its kind, a line that says
/// `what` was done, the code and CANN's own text of the calling thread, and what the user can do.
Error error_of(int code, const std::string& what);

/// Throws it, unless the code is 0.
void check(int code, const char* what);

/// Operators that were launched last, by any thread, for the text of errors that come late.
void note_launch(const char* name);
std::string last_launches();

}  // namespace danlu::npu
