#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eval/sandbox/runner/frame.h"
#include "eval/sandbox/runner/privileges.h"
#include "eval/sandbox/runner/program.h"

namespace danlu::eval::runner {
using namespace sandbox_protocol;
namespace {

std::string random_token() {
  unsigned char bytes[16];
  require(::getrandom(bytes, sizeof bytes, 0) == sizeof bytes, kInterpreter);
  std::string token;
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) token += "0123456789abcdef"[digit];
  }
  return token;
}

struct Pipes {
  Pipe input, output, token, verdict, fault;
  /// One byte each: from the runner "you are traced", then, started by root, to it "I have entered
  /// a user namespace" and back "you are in its map".
  Pipe traced, entered, mapped;
};

/// Without one the runner is gone: what it would have watched is not to start.
void wait_for_byte(Pipe& pipe, Layer layer) {
  pipe.write_end.reset();  // one's own would keep the other's end from being seen
  char byte = 0;
  errno = EPIPE;
  require(::read(pipe.read_end.get(), &byte, 1) == 1, layer);
}

void become_nobody(Pipes& pipes, const ProcFolder& proc) {
  require(::setgroups(0, nullptr) == 0, kUnprivilegedUser);
  proc.leave(CLONE_NEWUSER, "user", kUserNamespace);
  const char byte = 0;
  require(::write(pipes.entered.write_end.get(), &byte, 1) == 1, kUserNamespace);
  wait_for_byte(pipes.mapped, kUserNamespace);
  require(::setresgid(kInsideUser, kInsideUser, kInsideUser) == 0, kUnprivilegedUser);
  require(::setresuid(kInsideUser, kInsideUser, kInsideUser) == 0, kUnprivilegedUser);
}

void check_user(bool is_root) {
  uid_t users[3] = {};
  gid_t groups[3] = {};
  require(::getresuid(&users[0], &users[1], &users[2]) == 0, kUnprivilegedUser);
  require(::getresgid(&groups[0], &groups[1], &groups[2]) == 0, kUnprivilegedUser);
  errno = EPERM;
  for (int i = 0; i < 3; ++i)
    require(users[i] == kInsideUser && groups[i] == kInsideUser, kUnprivilegedUser);
  // Others than root cannot give theirs up; in the new root nothing belongs to one.
  require(!is_root || ::getgroups(0, nullptr) == 0, kUnprivilegedUser);
}

/// Numbers below 5 as the interpreter is to find them, all else closed when it starts.
void place_descriptors(const Pipes& pipes, const std::string& interpreter) {
  const int file = ::open(interpreter.c_str(), O_PATH | O_CLOEXEC);
  require(file >= 0 && ::dup3(file, kInterpreterDescriptor, O_CLOEXEC) >= 0, kInterpreter);
  require(::dup3(pipes.fault.write_end.get(), kFaultDescriptor, O_CLOEXEC) >= 0, kInterpreter);
  const int from[] = {pipes.input.read_end.get(), pipes.output.write_end.get(),
                      pipes.output.write_end.get(), pipes.token.read_end.get(),
                      pipes.verdict.write_end.get()};
  int high[5];
  // First out of the way: one of them may have a number that another is to get.
  for (int i = 0; i < 5; ++i) {
    high[i] = ::fcntl(from[i], F_DUPFD_CLOEXEC, kFaultDescriptor + 1);
    require(high[i] >= 0, kInterpreter);
  }
  for (int i = 0; i < 5; ++i) require(::dup2(high[i], i) == i, kInterpreter);
}

/// Where the end lies depends on how far the new process came.
void tell(const Unavailable& fault, const Pipes& pipes) {
  if (::write(kFaultDescriptor, &fault, sizeof fault) >= 0) return;
  if (::write(pipes.fault.write_end.get(), &fault, sizeof fault) < 0) ::_exit(2);
}

/// In the new process. Never returns.
[[noreturn]] void become_program(const Request& request, Pipes& pipes, const ProcFolder& proc,
                                 bool is_root) {
  try {
    ::setsid();
    errno = EPERM;
    require(::getpid() == 1, kProcessNamespace);
    // From here on, and until it lets go, the runner's end is this process's (PTRACE_O_EXITKILL).
    wait_for_byte(pipes.traced, kSystemCalls);
    if (is_root) become_nobody(pipes, proc);
    check_user(is_root);
    // And from there on too.
    require(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, kProcessNamespace);
    place_descriptors(pipes, request.interpreter);
    require(::chdir(kScratch) == 0, kReadOnlyRoot);
    drop_capabilities();
    limit_resources(request);
    const std::string libraries = "LD_LIBRARY_PATH=" + request.libraries;
    const char* arguments[] = {
        request.interpreter.c_str(), "-I", "-S", "-B", "-X", "utf8", "-c", kFrame, nullptr};
    // An empty entry would mean the working directory.
    const char* environment[] = {request.libraries.empty() ? nullptr : libraries.c_str(), nullptr};
    filter_system_calls();
    ::syscall(SYS_execveat, kInterpreterDescriptor, "", arguments, environment, AT_EMPTY_PATH);
    require(false, kInterpreter);
  } catch (const Unavailable& fault) {
    tell(fault, pipes);
  } catch (...) {
    tell({kInterpreter, ENOMEM}, pipes);
  }
  ::_exit(1);
}

/// Lets the one execveat through for which the filter asks a tracer, and lets go of the process at
/// that very call: with no tracer there is no second one. Returns as well if it ended before.
/// Errors: Unavailable.
void release_at_exec(pid_t process) {
  for (;;) {
    siginfo_t news{};
    // Not reaped: its number stays its own.
    const int rc = ::waitid(P_PID, static_cast<id_t>(process), &news, WEXITED | WSTOPPED | WNOWAIT);
    if (rc != 0 && errno == EINTR) continue;
    require(rc == 0, kSystemCalls);
    if (news.si_code != CLD_TRAPPED && news.si_code != CLD_STOPPED) return;
    const bool is_exec = news.si_status == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8);
    if (is_exec) {
      require(::ptrace(PTRACE_DETACH, process, nullptr, nullptr) == 0, kSystemCalls);
      return;
    }
    // A signal that somebody sent it; a stop of the whole process has more bits, and no signal.
    const long signal = news.si_status >> 8 ? 0 : news.si_status;
    require(::ptrace(PTRACE_CONT, process, nullptr, signal) == 0, kSystemCalls);
  }
}

/// Errors: Unavailable unless `holds`: what the new process told of itself, since it may have ended
/// before; else kSystemCalls.
void require_of_program(bool holds, Pipes& pipes) {
  if (holds) return;
  const int error = errno;
  pipes.traced.write_end.reset();  // it waits no longer for what does not come
  Unavailable fault{};
  const bool has_told = ::read(pipes.fault.read_end.get(), &fault, sizeof fault) == sizeof fault;
  throw has_told && fault.layer != kSystemCalls ? fault : Unavailable{kSystemCalls, error};
}

/// Errors: Unavailable, told by the new process or because it ended without a word.
void wait_for_start(Pipes& pipes, pid_t process, const ProcFolder& proc, bool is_root) {
  char byte = 0;
  const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
  require_of_program(::ptrace(PTRACE_SEIZE, process, nullptr, options) == 0, pipes);
  require_of_program(::write(pipes.traced.write_end.get(), &byte, 1) == 1, pipes);
  if (is_root && ::read(pipes.entered.read_end.get(), &byte, 1) == 1) {
    proc.map_nobody(process);
    require(::write(pipes.mapped.write_end.get(), &byte, 1) == 1, kUserNamespace);
  }
  release_at_exec(process);
  Unavailable fault{};
  const ssize_t n = ::read(pipes.fault.read_end.get(), &fault, sizeof fault);
  if (n == 0) return;
  throw n == sizeof fault ? fault : Unavailable{kInterpreter, EIO};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Pipe::Pipe() {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, kInterpreter);
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
}

RunningProgram start_program(const Request& request, const ProcFolder& proc, bool is_root) {
  RunningProgram program;
  program.token = random_token();
  Pipes pipes;
  const auto size = static_cast<ssize_t>(program.token.size());
  require(::write(pipes.token.write_end.get(), program.token.data(), size) == size, kInterpreter);
  program.process = ::fork();
  require(program.process >= 0, kProcessNamespace);
  if (program.process == 0) become_program(request, pipes, proc, is_root);
  // Ends that only the program has are closed here, so that its end is seen.
  for (Pipe* pipe : {&pipes.output, &pipes.verdict, &pipes.fault, &pipes.entered})
    pipe->write_end.reset();
  try {
    wait_for_start(pipes, program.process, proc, is_root);
  } catch (const Unavailable&) {
    ::kill(program.process, SIGKILL);
    ::waitpid(program.process, nullptr, 0);
    throw;
  }
  program.output = std::move(pipes.output.read_end);
  program.verdict = std::move(pipes.verdict.read_end);
  return program;
}

}  // namespace danlu::eval::runner
