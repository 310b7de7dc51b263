// eval/sandbox/sandbox.h: runs Python programs that a model wrote, so that nothing outside changes.
//
// What is around a program, and what is not promised: docs/sandbox.md.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sandbox/interpreter.h"

namespace danlu::eval {

struct SandboxSettings {
  std::string python = "python3";    ///< --python
  int64_t timeout_ms = 3000;         ///< from the interpreter's start, on the wall's clock
  int64_t memory_bytes = 1ll << 30;  ///< of addresses, the interpreter's own included
  int64_t output_bytes = 8ll << 20;  ///< printed more than that: killed
  int64_t file_bytes = 4ll << 20;    ///< of all files in its scratch folder together
};

struct CodeVerdict {
  enum class Outcome {
    kPassed,  ///< ran past its last statement
    kFailed,  ///< raised an exception, or ended before its last statement
    kTimedOut,
    kKilled,  ///< by a signal (its own crash, memory), or for printing too much
  };
  Outcome outcome = Outcome::kFailed;
  /// "passed", "failed: AssertionError: …", "timed out", "killed: …": in English, part of results.
  /// May hold whatever characters the program chose.
  std::string detail;
  std::string output;  ///< the first 64 KiB of what it printed
  int64_t cpu_ms = 0;  ///< of kTimedOut: what it took of a processor, the interpreter's start too
};

/// Programs run side by side do not see each other, nor what another left.
/// What a verdict is worth: a program that ends by itself (sys.exit, os._exit, a crash), prints
/// "passed" or closes its descriptors has not passed. One written against this very sandbox, or
/// that returns objects equal to everything, can pass without solving anything.
class CodeSandbox {
 public:
  /// Tries every layer from inside with a program of its own.
  /// Errors: UsageError naming --python as find_interpreter; DeviceError naming the layer that this
  /// system does not give. Nothing that a model wrote has been executed then.
  explicit CodeSandbox(SandboxSettings settings);

  /// Thread-safe. Errors: DeviceError as the constructor, nothing having been executed; IoError if
  /// the runner cannot be started; InternalError if it fails.
  CodeVerdict run(std::string_view program) const;

  using OnVerdict = std::function<void(size_t index, const CodeVerdict& verdict)>;
  /// All of them, up to `workers` at a time; `on_verdict` is called by one thread at a time, in any
  /// order. Errors: as run; as throw_interrupted, within timeout_ms of the signal.
  void run_all(const std::vector<std::string>& programs, size_t workers,
               const OnVerdict& on_verdict) const;

  const Interpreter& interpreter() const { return interpreter_; }
  const SandboxSettings& settings() const { return settings_; }

 private:
  void probe() const;

  SandboxSettings settings_;
  Interpreter interpreter_;
  std::vector<std::string> command_;  ///< the runner's, without the program's size
};

}  // namespace danlu::eval
