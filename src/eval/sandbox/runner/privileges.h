// eval/sandbox/runner/privileges.h: what the process that becomes the interpreter gives up, for
// good.
#pragma once
#include "eval/sandbox/runner/request.h"

namespace danlu::eval::runner {

/// Gives up every capability, in its bounding set too, and the right to gain any by starting
/// programs. Errors: Unavailable.
void drop_capabilities();

/// Time on the processor, memory, file size and number, processes, core files and others. None can
/// be raised again without a capability. The descriptor limit comes after those that are open:
/// higher ones stay usable, none can be made. Errors: Unavailable.
void limit_resources(const Request& request);

/// Refuses, with EPERM, every system call but those that an interpreter without threads, child
/// processes and network needs; a call by another processor's numbers ends the process. Of execve
/// and its like there is left execveat on descriptor kInterpreterDescriptor while a tracer is
/// attached that asked for such calls (PTRACE_O_TRACESECCOMP): it must detach at the first, and
/// from then on the call is refused too, with ENOSYS.
/// REQUIRES: drop_capabilities, limit_resources. Errors: Unavailable.
void filter_system_calls();

/// Above limit_resources' number of descriptors.
inline constexpr int kInterpreterDescriptor = sandbox_protocol::kInterpreterDescriptor;
inline constexpr int kFaultDescriptor = kInterpreterDescriptor + 1;
inline constexpr int kMaxDescriptors = 64;

}  // namespace danlu::eval::runner
