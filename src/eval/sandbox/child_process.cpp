#include "eval/sandbox/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace danlu::eval {
namespace {

/// Two ends of a channel. A pair of sockets: writing to one whose reader is gone is an error, not
/// a signal that would end this process.
struct Channel {
  Channel() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw IoError(tr("cannot start another program: {}", std::strerror(errno)));
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (ends[which] >= 0) ::close(ends[which]);
    ends[which] = -1;
  }
  int ends[2] = {-1, -1};
};

struct SpawnSettings {
  SpawnSettings(int channel, bool shares_errors) {
    ::posix_spawn_file_actions_init(&actions);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (fd != STDERR_FILENO || !shares_errors)
        ::posix_spawn_file_actions_adddup2(&actions, channel, fd);
    }
    ::posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    ::sigemptyset(&none);
    ::sigemptyset(&usual);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD})
      ::sigaddset(&usual, signal);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

using ChildClock = std::chrono::steady_clock;

// How long a wait is, at most, before it is asked whether to give up.
constexpr int64_t kLongestWaitMs = 50;

/// Sends and receives until the other side says no more.
ChildEnd talk(int fd, std::string_view input, const ChildManners& manners,
              ChildClock::time_point deadline, size_t max_bytes, std::string& output) {
  char block[16384];
  bool ends_input = manners.ends_input;
  for (;;) {
    if (manners.gives_up && manners.gives_up()) return ChildEnd::kGivenUp;
    if (input.empty() && ends_input) {
      ::shutdown(fd, SHUT_WR);
      ends_input = false;
    }
    int64_t left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - ChildClock::now()).count();
    if (left <= 0) return ChildEnd::kTooLate;
    if (manners.gives_up) left = std::min(left, kLongestWaitMs);
    pollfd end{fd, static_cast<short>(input.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    if (::poll(&end, 1, static_cast<int>(left)) <= 0) continue;
    if (end.revents & POLLIN) {
      const ssize_t n = ::recv(fd, block, sizeof block, MSG_DONTWAIT);
      if (n == 0) return ChildEnd::kDone;
      if (n < 0 && errno != EAGAIN && errno != EINTR) return ChildEnd::kDone;
      if (n > 0) output.append(block, static_cast<size_t>(n));
      if (output.size() > max_bytes) {
        output.resize(max_bytes);
        return ChildEnd::kTooMuch;
      }
    } else if (end.revents & POLLOUT) {
      const ssize_t n = ::send(fd, input.data(), input.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) input.remove_prefix(static_cast<size_t>(n));
      if (n < 0 && errno != EAGAIN && errno != EINTR) input = {};
    } else {
      return ChildEnd::kDone;
    }
  }
}

/// The end of a program may come after that of its output: it may close that and go on.
ChildEnd end_of(pid_t process, const ChildManners& manners, ChildClock::time_point deadline,
                int& status) {
  constexpr auto kLongest = std::chrono::milliseconds(10);
  for (auto pause = std::chrono::microseconds(100);;
       pause = std::min<std::chrono::microseconds>(2 * pause, kLongest)) {
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process || (ended < 0 && errno != EINTR)) return ChildEnd::kDone;
    if (manners.gives_up && manners.gives_up()) return ChildEnd::kGivenUp;
    if (ChildClock::now() >= deadline) return ChildEnd::kTooLate;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

ChildResult ask_child(const std::vector<std::string>& command, std::string_view input,
                      int64_t timeout_ms, size_t max_output_bytes, const ChildManners& manners) {
  const auto deadline = ChildClock::now() + std::chrono::milliseconds(timeout_ms);
  Channel channel;
  ChildResult result;
  pid_t process = -1;
  {
    const SpawnSettings settings(channel.ends[1], manners.shares_errors);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    result.start_error = ::posix_spawnp(&process, arguments[0], &settings.actions,
                                        &settings.attributes, arguments.data(), environ);
  }
  if (result.start_error != 0) return result;
  channel.close_end(1);
  result.end = talk(channel.ends[0], input, manners, deadline, max_output_bytes, result.output);
  if (result.end == ChildEnd::kDone) {
    result.end = end_of(process, manners, deadline, result.status);
    if (result.end == ChildEnd::kDone) return result;
  }
  ::kill(-process, SIGKILL);
  while (::waitpid(process, &result.status, 0) < 0 && errno == EINTR) {
  }
  return result;
}

}  // namespace danlu::eval
