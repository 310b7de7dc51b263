// eval/sandbox/protocol.h: what the evaluation and its runner (danlu-sandbox) say to each other.
//
// Arguments, "name=value" each: timeout_ms, memory, output, file, program (bytes that follow on
// standard input), interpreter, libraries (LD_LIBRARY_PATH), and any number of bind (a path that
// is also seen inside) and mask (a folder that is seen empty). Standard input stays open after
// the program: when it closes, who asked is gone, and everything is killed.
// Answer, on standard output: "<outcome> <number> <size>\n", then `size` bytes of detail, then what
// the program printed.
#pragma once
#include <cstddef>
#include <iterator>

namespace danlu::eval::sandbox_protocol {

/// What keeps a program in; each has a name that errors say. The order is that of names below.
enum Layer {
  kUserNamespace,
  kMountNamespace,
  kProcessNamespace,
  kNetworkNamespace,
  kIpcNamespace,
  kHostNamespace,
  kGroupNamespace,
  kReadOnlyRoot,
  kUnprivilegedUser,
  kNoCapabilities,
  kLimits,
  kSystemCalls,
  kNumLayers,
  kInterpreter = kNumLayers,  ///< no layer: what was to be started inside
};

inline constexpr const char* kLayerNames[] = {
    "user namespaces",          "mount namespaces", "process namespaces",
    "network namespaces",       "IPC namespaces",   "host name namespaces",
    "control group namespaces", "a read-only root", "an unprivileged user",
    "dropped capabilities",     "resource limits",  "system call filters (seccomp)",
};
static_assert(std::size(kLayerNames) == kNumLayers);

/// First word of an answer, and what its number is.
inline constexpr const char* kPassed = "passed";
inline constexpr const char* kFailed = "failed";        ///< detail: the exception
inline constexpr const char* kExited = "exited";        ///< exit code; no verdict was given
inline constexpr const char* kSignalled = "signalled";  ///< signal
inline constexpr const char* kTimedOut = "timed_out";   ///< ms of a processor that it took
inline constexpr const char* kTooMuchOutput = "too_much";
inline constexpr const char* kUnavailable = "unavailable";  ///< errno; detail: the layer's number

/// Who the program is outside, started by root.
inline constexpr unsigned kNobody = 65534;
/// And inside, as whom it is checked: a user whom the namespace does not know looks like 65534.
inline constexpr unsigned kInsideUser = 1000;
/// Where the runner has the interpreter's file before it starts it.
inline constexpr int kInterpreterDescriptor = 1000;
inline constexpr const char* kHostName = "sandbox";
inline constexpr const char* kProgramFile = "/program.py";
inline constexpr const char* kScratch = "/scratch";
inline constexpr size_t kMaxDetailBytes = 4096, kMaxKeptOutputBytes = 65536;

}  // namespace danlu::eval::sandbox_protocol
