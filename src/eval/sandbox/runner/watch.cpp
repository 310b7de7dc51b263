#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "eval/sandbox/runner/program.h"

namespace danlu::eval::runner {
using namespace sandbox_protocol;
namespace {

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

int64_t in_ms(const timeval& time) { return int64_t{time.tv_sec} * 1000 + time.tv_usec / 1000; }

class ProgramWatch {
 public:
  ProgramWatch(const Request& request, RunningProgram& program)
      : request_(request), program_(program), deadline_ms_(now_ms() + request.timeout_ms) {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    ended_ = Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    require(ended_.is_open(), kInterpreter);
  }

  Answer run() {
    while (!answer_.outcome) step();
    ::kill(program_.process, SIGKILL);
    int ignored = 0;
    rusage used{};
    if (!is_reaped_ && ::wait4(program_.process, &ignored, 0, &used) == program_.process &&
        answer_.outcome == kTimedOut) {
      answer_.number = static_cast<int>(in_ms(used.ru_utime) + in_ms(used.ru_stime));
    }
    // What it printed before its verdict; its end of the pipe is closed now.
    while (program_.output.is_open() && output_.size() < kMaxKeptOutputBytes) take_output();
    answer_.output = std::move(output_);
    return std::move(answer_);
  }

 private:
  void step() {
    // The program's end may lie before the watch's first look: asked for in every step.
    const bool has_ended = reap();
    const int64_t left_ms = deadline_ms_ - now_ms();
    if (!has_ended && left_ms <= 0) {
      answer_.outcome = kTimedOut;
      return;
    }
    pollfd ends[] = {{STDIN_FILENO, 0, 0},
                     {ended_.get(), POLLIN, 0},
                     {program_.output.get(), POLLIN, 0},
                     {program_.verdict.get(), POLLIN, 0}};
    const int wait_ms = has_ended ? 0 : static_cast<int>(std::min<int64_t>(left_ms, 1000));
    if (::poll(ends, std::size(ends), wait_ms) < 0 && errno != EINTR) require(false, kInterpreter);
    if (ends[0].revents) {
      ::kill(program_.process, SIGKILL);
      ::_exit(1);
    }
    if (ends[1].revents) {
      signalfd_siginfo told;
      while (::read(ended_.get(), &told, sizeof told) > 0) {
      }
    }
    const bool has_news = ends[2].revents || ends[3].revents;
    if (ends[3].revents) take_verdict();
    if (ends[2].revents && !answer_.outcome) take_output();
    // Only when the pipes are empty: what it said before it ended counts.
    if (has_ended && !has_news && !answer_.outcome) end_without_verdict();
  }

  bool reap() {
    if (!is_reaped_) is_reaped_ = ::waitpid(program_.process, &status_, WNOHANG) != 0;
    return is_reaped_;
  }

  void take_verdict() {
    char block[1024];
    const ssize_t n = ::read(program_.verdict.get(), block, sizeof block);
    if (n <= 0) {
      program_.verdict.reset();
      return;
    }
    said_.append(block, static_cast<size_t>(n));
    said_.resize(std::min(said_.size(), kMaxDetailBytes));
    if (said_ == program_.token) answer_.outcome = kPassed;
  }

  void take_output() {
    char block[65536];
    const ssize_t n = ::read(program_.output.get(), block, sizeof block);
    if (n <= 0) {
      program_.output.reset();
      return;
    }
    const auto size = static_cast<size_t>(n);
    output_.append(block, std::min(size, kMaxKeptOutputBytes - output_.size()));
    printed_bytes_ += n;
    if (printed_bytes_ > request_.output_bytes && !answer_.outcome)
      answer_.outcome = kTooMuchOutput;
  }

  void end_without_verdict() {
    constexpr const char* kSays = "failed: ";
    if (WIFSIGNALED(status_)) {
      answer_.outcome = kSignalled;
      answer_.number = WTERMSIG(status_);
    } else if (said_.starts_with(kSays)) {
      answer_.outcome = kFailed;
      answer_.detail = said_.substr(std::string_view(kSays).size());
    } else {
      answer_.outcome = kExited;
      answer_.number = WEXITSTATUS(status_);
    }
  }

  const Request& request_;
  RunningProgram& program_;
  int64_t deadline_ms_;
  Descriptor ended_;
  bool is_reaped_ = false;
  int status_ = 0;
  int64_t printed_bytes_ = 0;
  std::string said_, output_;
  Answer answer_{nullptr, 0, {}, {}};
};

}  // namespace

Answer watch_program(const Request& request, RunningProgram& program) {
  return ProgramWatch(request, program).run();
}

}  // namespace danlu::eval::runner
