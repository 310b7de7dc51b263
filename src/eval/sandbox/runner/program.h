// eval/sandbox/runner/program.h: the one process that runs a program, from its start to its end.
#pragma once
#include <sys/types.h>

#include "eval/sandbox/runner/namespaces.h"
#include "eval/sandbox/runner/request.h"

namespace danlu::eval::runner {

/// An open descriptor, closed with its owner and by whatever program is started.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_;
};

struct Pipe {
  Pipe();
  Descriptor read_end, write_end;
};

struct RunningProgram {
  pid_t process = -1;
  Descriptor output;   ///< what it prints
  Descriptor verdict;  ///< what the frame around the program says (kFrame)
  std::string token;   ///< which it only says after the program's last statement
};

/// Starts the interpreter as process 1 of the namespaces entered, with every layer around it, and
/// returns once it runs. Errors: Unavailable; nothing of the program has been executed then.
RunningProgram start_program(const Request& request, const ProcFolder& proc, bool is_root);

struct Answer {
  const char* outcome;
  int number = 0;
  std::string detail, output;
};

/// Waits for its end or its verdict, for request.timeout_ms at most, and leaves nothing running.
/// Ends this process if standard input closes.
Answer watch_program(const Request& request, RunningProgram& program);

}  // namespace danlu::eval::runner
