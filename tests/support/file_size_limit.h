// tests/support/file_size_limit.h: what happens when the disk is full, without filling one.
#pragma once
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace danlu::test {

/// Runs `body` in a child process that cannot write files beyond `limit_bytes`: the same partial
/// writes and errors as a full disk. Returns the child's exit code, which is what `body` returns.
template <typename Body>
int with_file_size_limit(rlim_t limit_bytes, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const struct rlimit limit{limit_bytes, limit_bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace danlu::test
