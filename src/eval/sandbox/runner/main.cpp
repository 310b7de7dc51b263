// danlu-sandbox: runs one program that nobody trusts (eval/sandbox/protocol.h, docs/sandbox.md).
//
// A process of its own, since between fork and exec a process with threads may do next to nothing,
// and the evaluation has many. It links no library but the language's.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>

#include "eval/sandbox/runner/privileges.h"
#include "eval/sandbox/runner/program.h"

namespace danlu::eval::runner {
namespace {

/// What the evaluation had open is none of ours.
void close_inherited() {
  DIR* folder = ::opendir("/proc/self/fd");
  require(folder, sandbox_protocol::kLimits);
  std::vector<int> inherited;
  for (const dirent* entry; (entry = ::readdir(folder));) {
    const int fd = ::atoi(entry->d_name);
    if (fd > STDERR_FILENO && fd != ::dirfd(folder)) inherited.push_back(fd);
  }
  ::closedir(folder);
  for (const int fd : inherited) ::close(fd);
}

void allow_high_descriptors() {
  rlimit limit{};
  require(::getrlimit(RLIMIT_NOFILE, &limit) == 0, sandbox_protocol::kLimits);
  limit.rlim_cur = limit.rlim_max;
  require(::setrlimit(RLIMIT_NOFILE, &limit) == 0, sandbox_protocol::kLimits);
}

Answer answer_to(const Request& request) {
  try {
    close_inherited();
    allow_high_descriptors();
    const bool is_root = ::geteuid() == 0;
    const ProcFolder proc;
    leave_namespaces(proc, is_root);
    make_root(request);
    RunningProgram program = start_program(request, proc, is_root);
    return watch_program(request, program);
  } catch (const Unavailable& fault) {
    return {sandbox_protocol::kUnavailable, fault.error, std::to_string(fault.layer), {}};
  }
}

}  // namespace
}  // namespace danlu::eval::runner

int main(int argc, char** argv) {
  using namespace danlu::eval::runner;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::umask(022);
  try {
    const Answer answer = answer_to(read_request(argc, argv));
    ::printf("%s %d %zu\n", answer.outcome, answer.number, answer.detail.size());
    ::fwrite(answer.detail.data(), 1, answer.detail.size(), stdout);
    ::fwrite(answer.output.data(), 1, answer.output.size(), stdout);
    return ::fflush(stdout) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    ::fprintf(stderr, "danlu-sandbox: %s\n", error.what());
    return 2;
  }
}
