// Interrupts and deaths while programs run in the sandbox, and the attacks on it by another user.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "base/interrupt.h"
#include "eval/sandbox_support.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace {

using ::testing::HasSubstr;

TEST_F(SandboxAttack, AnInterruptEndsTheRunOfMany) {
  DANLU_REQUIRES_SANDBOX();
  watch_interrupts();
  size_t num_done = 0;
  EXPECT_THROW(sandbox.run_all(std::vector<std::string>(50), 2,
                               [&](size_t, const CodeVerdict&) {
                                 if (++num_done == 3) ::raise(SIGINT);
                               }),
               InterruptedError);
  clear_interrupt();
  EXPECT_LE(num_done, 5u);  // those under way are finished
}

/// An evaluation's process that runs a program for ever, its runner, and the interpreter below.
std::vector<pid_t> endless_evaluation(const CodeSandbox& sandbox) {
  const pid_t evaluation = ::fork();
  if (evaluation == 0) {
    SandboxSettings patient;
    patient.timeout_ms = 3'600'000;
    try {
      CodeSandbox(patient).run("while True: pass");
    } catch (const Error&) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<pid_t> below = descendants_of(evaluation);
    const auto line = [&](size_t i) { return text_of(fmt::format("/proc/{}/cmdline", below[i])); };
    // The program's own, not the probe's, and started.
    if (below.size() == 2 && line(0).find("program=16") != std::string::npos &&
        line(1).starts_with(sandbox.interpreter().executable))
      return {evaluation, below[0], below[1]};
    if (::waitpid(evaluation, nullptr, WNOHANG) != 0) return {};
  }
}

void expect_gone(pid_t process) {
  const auto is_there = [&] {
    const std::string stat = text_of(fmt::format("/proc/{}/stat", process));
    return !stat.empty() && stat.find(") Z ") == std::string::npos;
  };
  for (int i = 0; i < 6000 && is_there(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!is_there()) return;
  ADD_FAILURE() << "process " << process << " runs on";
  ::kill(process, SIGKILL);
}

TEST_F(SandboxAttack, NothingRunsOnWhenTheEvaluationOrTheRunnerIsKilled) {
  DANLU_REQUIRES_SANDBOX();
  for (const size_t killed : {0, 1}) {
    const std::vector<pid_t> processes = endless_evaluation(sandbox);
    ASSERT_EQ(processes.size(), 3u) << "it ended by itself";
    if (::geteuid() == 0) {
      const std::string status = text_of(fmt::format("/proc/{}/status", processes[2]));
      EXPECT_THAT(status, HasSubstr("Uid:\t65534\t65534\t65534\t65534\n"));
      EXPECT_THAT(status, HasSubstr("Gid:\t65534\t65534\t65534\t65534\n"));
      EXPECT_THAT(status, HasSubstr("Groups:\t \n"));
    }
    ::kill(processes[killed], SIGKILL);
    int status = 0;
    ::waitpid(processes[0], &status, 0);
    // Without its runner an evaluation has an error, not a verdict.
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, killed == 1 ? 3 : -1);
    for (const size_t left : {1, 2}) expect_gone(processes[left]);
  }
}

/// All of the above again as a user without rights: other namespaces are entered first then.
TEST(SandboxByAnotherUser, HoldsTheSameAttacks) {
  DANLU_REQUIRES_SANDBOX();
  if (::geteuid() != 0) GTEST_SKIP() << "these tests run as an unprivileged user already";
  const test::TemporaryDirectory folder;
  fs::permissions(folder, fs::perms::all);
  const std::string report = (folder / "report").string();
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(report.c_str(), O_WRONLY | O_CREAT, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    constexpr unsigned kUser = 54321;
    if (::setgroups(0, nullptr) || ::setresgid(kUser, kUser, kUser) ||
        ::setresuid(kUser, kUser, kUser))
      ::_exit(99);
    ::setenv("PATH", "/usr/bin:/bin", 1);  // root's own interpreter may not be for others
    ::setenv("TMPDIR", folder.path().c_str(), 1);
    ::setenv("HOME", "/", 1);
    ::unsetenv("GTEST_OUTPUT");  // a report of ours, where another user may not write
    constexpr const char* kSelf = DANLU_BUILD_DIR "/test_eval";  // finds its runner beside itself
    ::execl(kSelf, kSelf, "--gtest_filter=SandboxAttack.*", nullptr);
    ::_exit(98);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string said = text_of(report);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 98)
    GTEST_SKIP() << "other users may not enter the build folder";
  EXPECT_EQ(status, 0) << said;
  if (said.find("[  SKIPPED ]") != said.npos && !sandbox_must_work()) GTEST_SKIP() << said;
  EXPECT_THAT(said, ::testing::Not(HasSubstr("[  SKIPPED ]")));
}

}  // namespace
}  // namespace danlu::eval
