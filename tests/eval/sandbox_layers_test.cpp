// What happens where a system lacks a layer of the sandbox, or only pretends to have it: nothing is
// executed, and the error says which. The lacks are real: a child process takes on limits and
// filters of system calls, as containers have them, before it asks for a sandbox.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "eval/sandbox_support.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Answers a system call with `error` (0: as if it had been done) if the bits of `mask` in its
/// argument number `argument` are `value`.
struct PretendedCall {
  long call;
  int argument = 0;
  uint32_t mask = 0, value = 0;
  int error = EPERM;
};

bool pretend(const PretendedCall& pretended) {
  const auto argument =
      static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * pretended.argument);
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 4, static_cast<uint32_t>(pretended.call)},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, argument},
      {BPF_ALU | BPF_AND | BPF_K, 0, 0, pretended.mask},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, pretended.value},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(pretended.error)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/// What making a sandbox and, if `made` is given, running a program in that one say in a child
/// process that has done `prepare`.
std::string said_after(const std::function<bool()>& prepare, const CodeSandbox* made = nullptr) {
  std::string lacks;
  SandboxSettings settings;
  settings.python = shared_sandbox(lacks)->interpreter().executable;
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    if (!prepare()) {
      said = "not prepared";
    } else {
      try {
        if (made) said = "executed: " + made->run("").detail;
        if (!made) said = "made: " + CodeSandbox(settings).interpreter().version;
      } catch (const DeviceError& error) {
        said = std::string("refused: ") + error.what() + " | " + error.hint();
      } catch (const std::exception& error) {
        said = std::string("another error: ") + error.what();
      }
    }
    ::_exit(::write(ends[1], said.data(), said.size()) < 0);
  }
  ::close(ends[1]);
  std::string said;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;) said.append(block, n);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

struct MissingLayer {
  PretendedCall call;
  const char* name;
  /// Only the first look at it, when the sandbox is made, shows that it is without effect.
  bool is_seen_by_probe = false;
};

void expect_refusal(const CodeSandbox& sandbox, const MissingLayer& missing) {
  const auto prepare = [&] { return pretend(missing.call); };
  const auto names_it =
      AllOf(HasSubstr("refused: no model-written code was executed"), HasSubstr(missing.name));
  EXPECT_THAT(said_after(prepare), names_it)
      << missing.call.call << " " << missing.call.value << " " << missing.call.error;
  if (missing.is_seen_by_probe) return;
  EXPECT_THAT(said_after(prepare, &sandbox), names_it);
}

constexpr uint32_t kAllBits = 0xffffffff;

TEST(SandboxLayers, EachNamespaceThatIsRefusedOrOnlyPretendedIsNamed) {
  DANLU_REQUIRES_SANDBOX();
  for (const auto& [flag, name] : std::initializer_list<std::pair<int, const char*>>{
           {CLONE_NEWUSER, "user namespaces"},
           {CLONE_NEWNS, "mount namespaces"},
           {CLONE_NEWPID, "process namespaces"},
           {CLONE_NEWNET, "network namespaces"},
           {CLONE_NEWIPC, "IPC namespaces"},
           {CLONE_NEWUTS, "host name namespaces"},
           {CLONE_NEWCGROUP, "control group namespaces"}}) {
    for (const int error : {EPERM, 0})
      expect_refusal(sandbox,
                     {{SYS_unshare, 0, kAllBits, static_cast<uint32_t>(flag), error}, name});
  }
}

TEST(SandboxLayers, EachOtherLayerThatIsRefusedIsNamed) {
  DANLU_REQUIRES_SANDBOX();
  const char* const root = "a read-only root";
  expect_refusal(sandbox, {{SYS_mount}, root});
  expect_refusal(sandbox, {{SYS_pivot_root}, root});
  expect_refusal(sandbox, {{SYS_umount2}, root});
  expect_refusal(sandbox, {{SYS_sethostname}, "host name namespaces"});
  expect_refusal(sandbox, {{SYS_capset}, "dropped capabilities"});
  expect_refusal(sandbox, {{SYS_prctl, 0, kAllBits, PR_SET_NO_NEW_PRIVS}, "dropped capabilities"});
  expect_refusal(sandbox, {{SYS_prlimit64, 1, kAllBits, RLIMIT_NPROC, ENOSYS}, "resource limits"});
  expect_refusal(
      sandbox, {{SYS_prctl, 0, kAllBits, PR_SET_SECCOMP, EINVAL}, "system call filters (seccomp)"});
  expect_refusal(sandbox, {{SYS_execveat, 0, 0, 0, ENOSYS}, "does not start inside the sandbox"});
  // Without a tracer nobody lets the interpreter's start through.
  expect_refusal(sandbox, {{SYS_ptrace}, "system call filters (seccomp)"});
  if (::geteuid() == 0) expect_refusal(sandbox, {{SYS_setresuid}, "an unprivileged user"});
}

TEST(SandboxLayers, WhatIsWithoutEffectIsFoundFromInside) {
  DANLU_REQUIRES_SANDBOX();
  const bool by_probe = true;
  expect_refusal(
      sandbox,
      {{SYS_prctl, 0, kAllBits, PR_SET_SECCOMP, 0}, "system call filters (seccomp)", by_probe});
  expect_refusal(sandbox,
                 {{SYS_prlimit64, 1, kAllBits, RLIMIT_NPROC, 0}, "resource limits", by_probe});
  expect_refusal(sandbox,
                 {{SYS_prlimit64, 1, kAllBits, RLIMIT_AS, 0}, "resource limits", by_probe});
  expect_refusal(sandbox,
                 {{SYS_mount, 3, MS_REMOUNT, MS_REMOUNT, 0}, "a read-only root", by_probe});
  expect_refusal(sandbox, {{SYS_pivot_root, 0, 0, 0, 0}, "a read-only root", by_probe});
  expect_refusal(sandbox, {{SYS_sethostname, 0, 0, 0, 0}, "host name namespaces", by_probe});
  expect_refusal(sandbox, {{SYS_capset, 0, 0, 0, 0}, "dropped capabilities"});
  if (::geteuid() != 0) return;
  for (const long call : {SYS_setresuid, SYS_setresgid})
    expect_refusal(sandbox, {{call, 0, 0, 0, 0}, "an unprivileged user"});
}

/// As most containers and some distributions are set up.
TEST(SandboxLayers, ASystemThatAllowsNoUserNamespacesIsToldWhichSettingDoes) {
  DANLU_REQUIRES_SANDBOX();
  const auto prepare = [&] {
    const uid_t user = ::geteuid();
    if (::unshare(CLONE_NEWUSER) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "1000 " << user << " 1";
    std::ofstream("/proc/sys/user/max_user_namespaces") << 0;
    return ::geteuid() == 1000;
  };
  for (const CodeSandbox* made : {static_cast<const CodeSandbox*>(nullptr), &sandbox})
    EXPECT_THAT(said_after(prepare, made),
                AllOf(HasSubstr("refused: "), HasSubstr("user namespaces (No space left"),
                      HasSubstr("sysctl user.max_user_namespaces")));
}

TEST(SandboxLayers, WithoutLacksItIsMadeAndExecutes) {
  DANLU_REQUIRES_SANDBOX();
  const auto nothing = [] { return true; };
  EXPECT_THAT(said_after(nothing), HasSubstr("made: 3."));
  EXPECT_EQ(said_after(nothing, &sandbox), "executed: passed");
}

TEST(SandboxLayers, WhatIsNoInterpreterIsNamed) {
  for (const char* python : {"/nowhere/python3", "danlu-no-such-program", "/bin/true", "/bin/cat",
                             "/etc/passwd", "/", ""}) {
    SandboxSettings settings;
    settings.python = python;
    EXPECT_THAT(test::error_of<UsageError>([&] { CodeSandbox sandbox(settings); }),
                HasSubstr(std::string("--python ") + python + ": not a Python 3.7 or newer"));
  }
}

}  // namespace
}  // namespace danlu::eval
