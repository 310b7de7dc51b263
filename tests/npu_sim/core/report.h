// Texts of errors, broken rules, counters and planted faults.
#pragma once

#include <cstdint>
#include <string>

#include "acl_api.h"

namespace npu_sim {

/// Notes the code and the text for aclGetRecentErrMsg in this thread, and returns the code.
aclError fail(aclError code, const std::string& text);
/// The thread's text, nullptr if none; clears it.
const char* take_message();
/// The thread's last code; `clear` forgets it.
aclError last_error(bool clear);

/// A rule that hardware punishes by wrong numbers or a crash, and the simulator by saying so:
/// counted, printed, and (unless NpuSimAbortOnViolation(0)) the end of the process.
void violation(const std::string& text);
void abort_on_violation(bool abort);

void count(const std::string& name, int64_t by = 1);
/// Keeps the largest value seen.
void count_peak(const std::string& name, int64_t value);
int64_t counted(const std::string& name);
/// At the end of the process, if NPU_SIM_COUNTERS names a file.
void write_counters_file();

/// How many objects of a kind live, for the report of aclFinalize; libnnopbase sets it when it is
/// loaded.
using AliveCounter = int64_t (*)(const char* kind);
void set_alive_counter(AliveCounter counter);
int64_t alive(const char* kind);

/// "NPU SIMULATOR: …", once a process.
void announce();

/// What is planted for the next call of a function of the interface: 0 or the code to return.
aclError planted_call_error(const char* function, int card);

struct TaskFault {
  enum Kind { kNone, kFail, kHang, kDead, kLink } kind = kNone;
  aclError code = 0;
};
/// What is planted for the task that runs now. Slow and kill faults happen inside.
TaskFault planted_task_fault(const std::string& operation, int card);

}  // namespace npu_sim
