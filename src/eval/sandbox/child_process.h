// eval/sandbox/child_process.h: another program's answer, asked for from a process with threads.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::eval {

struct ChildResult {
  int start_error = 0;  ///< errno; the rest means nothing then
  bool timed_out = false;
  int status = 0;      ///< as waitpid's
  std::string output;  ///< standard output and error, max_output_bytes at most
};

/// Starts `command` (looked for in PATH), gives it `input` and reads what it says to its end. Its
/// standard input stays open until then: that it closes tells it that this process is gone. It is
/// of a process group of its own, so Ctrl-C at the terminal does not reach it, and is killed after
/// `timeout_ms` or when it says too much.
/// Thread-safe. Errors: IoError if the system has no descriptors left.
ChildResult ask_child(const std::vector<std::string>& command, std::string_view input,
                      int64_t timeout_ms, size_t max_output_bytes);

}  // namespace danlu::eval
