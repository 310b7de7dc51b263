// base/error.h: the errors Danlu reports, each with the exit code its kind has.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "base/message.h"

namespace danlu {

/// Process exit codes. Values are part of the command line's contract: never renumber.
enum class ExitCode : int {
  kSuccess = 0,
  kInternal = 1,  ///< a bug in Danlu
  kUsage = 2,     ///< flags or configuration
  kData = 3,      ///< a data set: unreadable, malformed, nothing usable in it
  kModel = 4,     ///< model, adapter, tokenizer or template, missing files of them included
  kDevice = 5,    ///< device missing, driver mismatch
  kMemory = 6,    ///< out of memory, planned or met
  kComm = 7,      ///< communication, peer lost
  kIo = 8,        ///< disk, checkpoint
  kNumeric = 9,   ///< non-finite or diverged training
  kHungUp = 129,
  kTerminated = 143,
  kInterrupted = 130,
};

/// Base of every error Danlu throws on purpose. what() is one line: "[where] rule, got"; hint()
/// says what the user can do about it, on a line of its own, and may be empty. Both are said with
/// tr().
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string hint_;
};

template <ExitCode kCode>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message, std::string hint = {})
      : Error(kCode, message, std::move(hint)) {}
};

using InternalError = ErrorOf<ExitCode::kInternal>;
using UsageError = ErrorOf<ExitCode::kUsage>;
using DataError = ErrorOf<ExitCode::kData>;
using ModelError = ErrorOf<ExitCode::kModel>;
using DeviceError = ErrorOf<ExitCode::kDevice>;
using MemoryError = ErrorOf<ExitCode::kMemory>;
using CommError = ErrorOf<ExitCode::kComm>;
using IoError = ErrorOf<ExitCode::kIo>;
using NumericError = ErrorOf<ExitCode::kNumeric>;
/// Thrown once state is saved after SIGHUP/SIGTERM/SIGINT.
using HungUpError = ErrorOf<ExitCode::kHungUp>;
using TerminatedError = ErrorOf<ExitCode::kTerminated>;
using InterruptedError = ErrorOf<ExitCode::kInterrupted>;

/// Throws the ErrorOf that `error` is by its code: of one that was told by another process.
[[noreturn]] void throw_as_kind(const Error& error);

/// The exception under way as one of ours, each with one line: itself; what the system or a library
/// threw, by its kind; else an InternalError. REQUIRES: called inside a catch block.
Error current_error();

}  // namespace danlu
