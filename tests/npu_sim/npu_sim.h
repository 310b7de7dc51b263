// What tests ask the simulator beside the vendor's functions. Exported by libascendcl.so,
// NpuSimAlive by libnnopbase.so.
#pragma once

#include <cstdint>

extern "C" {
/// Which variant this is ("1 current", "1 old"). A loader that finds this symbol knows that no
/// device is there.
const char* danlu_npu_simulator_version();
/// The value of a counter by name, 0 if nothing counted under it. Names end in what they count; the
/// operator's name follows "launches." and "hccl.". See README.md for the list.
int64_t NpuSimCounter(const char* name);
int64_t danlu_sim_counter(const char* name);
/// All counters, a line each: "name value". Valid until the thread's next call.
const char* NpuSimCounters();
void NpuSimResetCounters();
/// Adds faults in the words of NPU_SIM_FAULT (README.md). Returns 0, or 1 if the words are wrong.
int NpuSimInject(const char* faults);
void NpuSimClearFaults();
/// Whether a broken rule ends the process (1, the default) or is only counted and printed (0).
void NpuSimAbortOnViolation(int abort);
/// What the last broken rule was, "" if none. Valid until the thread's next call.
const char* NpuSimLastViolation();
/// "random" (default), "lazy" (nothing runs before somebody waits) or "eager". Returns 1 for other
/// words.
int NpuSimSchedule(const char* schedule);
/// Live objects by kind: "tensors", "scalars", "arrays", "lists", "executors", "streams", "events",
/// "blocks".
int64_t NpuSimAlive(const char* kind);
/// Back to the state before aclInit: everything forgotten, no context anywhere. Only with nothing
/// queued.
void NpuSimReset();
/// How many milliseconds a collective waits for its peers; 0: what HCCL_EXEC_TIMEOUT says.
void NpuSimCollectiveTimeout(int64_t ms);
}
