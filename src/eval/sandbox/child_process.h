// eval/sandbox/child_process.h: another program's answer, asked for from a process with threads.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::eval {

/// How it ended; but for kDone it was killed.
enum class ChildEnd { kDone, kTooLate, kTooMuch, kGivenUp };

struct ChildResult {
  int start_error = 0;  ///< errno; the rest means nothing then
  ChildEnd end = ChildEnd::kDone;
  int status = 0;      ///< as waitpid's
  std::string output;  ///< standard output, and error unless shared; max_output_bytes at most
};

/// How a program is spoken to.
struct ChildManners {
  /// Its standard input ends after the input. If false it stays open to the end, so that its end
  /// tells the program that this process is gone.
  bool ends_input = false;
  /// What it writes to standard error goes where this process writes its own, and is no answer.
  bool shares_errors = false;
  /// Asked again and again while it runs; true: nobody waits for its answer any more, and it is
  /// killed. Empty: never.
  std::function<bool()> gives_up = {};
};

/// Starts `command` (looked for in PATH), gives it `input`, reads what it says, and waits for its
/// end. It is of a process group of its own, so Ctrl-C at the terminal does not reach it, and that
/// group is killed after `timeout_ms` or when it says too much.
/// Thread-safe. Errors: IoError if the system has no descriptors left.
ChildResult ask_child(const std::vector<std::string>& command, std::string_view input,
                      int64_t timeout_ms, size_t max_output_bytes,
                      const ChildManners& manners = {});

}  // namespace danlu::eval
