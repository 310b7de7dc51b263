#include "doctor/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/message.h"

namespace danlu::doctor {
namespace {

using Clock = std::chrono::steady_clock;

/// The two ends of a pipe. They are closed when the object goes.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { is_open = ::pipe2(ends, O_CLOEXEC) == 0; }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  bool is_open = false;
};

/// Reads until the writers are gone. False: the time was over before that.
bool read_until(int fd, Clock::time_point deadline, std::string& out) {
  constexpr size_t kMost = size_t{4} << 20;
  std::array<char, 1 << 14> block;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{fd, POLLIN, 0};
    const int found = ::poll(&ready, 1, static_cast<int>(left));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return false;
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (out.size() < kMost) out.append(block.data(), static_cast<size_t>(got));
  }
}

/// Waits for the end of the program itself, which may close its output before and go on. A program
/// that a driver holds up cannot be killed, and is left behind.
int wait_until(pid_t child, Clock::time_point deadline, bool& timed_out) {
  constexpr auto kToDie = std::chrono::seconds(1);
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return status;
    const auto now = Clock::now();
    if (now >= deadline && !std::exchange(timed_out, true)) ::kill(-child, SIGKILL);
    if (timed_out && now >= deadline + kToDie) return 0;
    ::usleep(2000);
  }
}

/// Forks; `work` runs in the child, and does not return there.
ChildResult run_child(double timeout_s, const std::function<void(int)>& work) {
  ChildResult result;
  Pipe pipe;
  if (!pipe.is_open) {
    result.out = std::strerror(errno);
    return result;
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    result.out = std::strerror(errno);
    return result;
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    work(pipe.ends[1]);
    ::_exit(127);
  }
  ::setpgid(child, child);
  pipe.close_end(1);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_s));
  result.timed_out = !read_until(pipe.ends[0], deadline, result.out);
  if (result.timed_out) ::kill(-child, SIGKILL);
  const int status = wait_until(child, deadline, result.timed_out);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace

ChildResult run_program(const fs::path& program, const std::vector<std::string>& arguments,
                        double timeout_s) {
  // All of it is made before the fork: after it no memory may be asked for.
  std::vector<std::string> words = {program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> lines;
  for (char** line = environ; *line; ++line) {
    if (!std::string_view(*line).starts_with("LC_ALL=")) lines.emplace_back(*line);
  }
  lines.emplace_back("LC_ALL=C");
  const auto pointers_to = [](std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  };
  const std::vector<char*> argv = pointers_to(words), envp = pointers_to(lines);
  return run_child(timeout_s, [&](int output) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
  });
}

ChildResult ask_child(const std::function<std::string()>& body, double timeout_s) {
  return run_child(timeout_s, [&](int output) {
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
    std::string answer;
    int code = 0;
    try {
      answer = body();
    } catch (const std::exception& error) {
      answer = error.what();
      code = 1;
    }
    write_all(output, answer.data(), answer.size());
    ::_exit(code);
  });
}

std::optional<fs::path> find_program(const SystemRoots& roots, const std::string& name) {
  for (const fs::path& folder : roots.programs) {
    const fs::path program = folder / name;
    std::error_code none;
    if (fs::is_regular_file(program, none) && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

std::string describe_failure(const ChildResult& result, double timeout_s) {
  if (result.timed_out) return tr("it did not answer within {:g} s", timeout_s);
  if (result.signal != 0) {
    const char* name = ::sigabbrev_np(result.signal);
    return tr("it was ended by SIG{}", name ? name : std::to_string(result.signal).c_str());
  }
  std::string last;
  for (const std::string& line : lines_of(result.out)) {
    if (!trimmed(line).empty()) last = trimmed(line);
  }
  if (last.empty()) return tr("it ended with code {}", result.exit_code);
  return tr("it ended with code {}: {}", result.exit_code, last.substr(0, 200));
}

}  // namespace danlu::doctor
