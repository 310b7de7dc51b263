// Attacks on the sandbox, run for real. Most programs here assert their own failure: they pass only
// if what they tried was refused; that nothing changed outside is looked at outside.
#include "eval/sandbox/sandbox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "eval/sandbox_support.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace {

using Outcome = CodeVerdict::Outcome;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// In front of programs that assert what is refused.
constexpr const char* kAttackTools = R"py(
import ctypes, errno, os, sys

def refused(act, *arguments, by=(errno.EPERM,)):
    try:
        act(*arguments)
    except OSError as error:
        assert error.errno in by, (act, error)
        return
    assert False, (act, arguments, 'was let through')

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), 'system call %d' % number)
)py";

CodeVerdict attack(const CodeSandbox& sandbox, const std::string& text) {
  return sandbox.run(kAttackTools + text);
}

void expect_harmless(const CodeSandbox& sandbox, const std::string& text) {
  const CodeVerdict verdict = attack(sandbox, text);
  EXPECT_EQ(verdict.outcome, Outcome::kPassed) << verdict.detail << "\n" << verdict.output;
}

TEST_F(SandboxAttack, NoProcessIsMade) {
  DANLU_REQUIRES_SANDBOX();
  expect_harmless(sandbox, R"py(
made = 0
for attempt in range(10000):
    try:
        if os.fork() == 0:
            os._exit(0)
        made += 1
    except PermissionError:
        pass
assert made == 0
refused(os.forkpty, by=(errno.EPERM, errno.ENOENT))
assert libc.fork() == -1 and libc.vfork() == -1
import _thread, multiprocessing, threading
for start in (lambda: _thread.start_new_thread(print, ()), threading.Thread(target=print).start):
    try:
        start()
        assert False, 'a thread'
    except RuntimeError:
        pass
refused(multiprocessing.Process(target=print).start)
)py");
}

TEST_F(SandboxAttack, NoProgramIsStarted) {
  DANLU_REQUIRES_SANDBOX();
  expect_harmless(sandbox, fmt::format(R"py(
import subprocess
for path in (sys.executable, '/bin/sh', '/scratch/own'):
    refused(os.execv, path, [path])
    if hasattr(os, 'posix_spawn'):
        refused(os.posix_spawn, path, [path], {{}})
    refused(subprocess.run, [path])
open('own', 'w').write('#!' + sys.executable)
refused(os.chmod, 'own', 0o700)
refused(os.execv, '/scratch/own', ['own'])
assert os.system('echo') != 0
# The one way that was open to the runner. With an absolute path no descriptor is looked at.
program = os.open(sys.executable, os.O_RDONLY)
words = (ctypes.c_char_p * 2)(b'python3', None)
os.chdir(os.path.dirname(sys.executable))
for path in (os.fsencode(sys.executable), os.path.basename(sys.executable).encode(), b'',
             b'/program.py', None):
    for number in (program, 1000, 1001, 3, -100):
        for flags in (0x1000, 0, 0x100):
            runner_s = (number, flags) == (1000, 0x1000)
            refused(call, {0}, number, path, words, None, flags,
                    by=(errno.ENOSYS if runner_s else errno.EPERM,))
    refused(call, {0}, 1000 + (1 << 32), path, words, None, 0x1000, by=(errno.ENOSYS,))
os.chdir('/scratch')
import fcntl
for command in (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC):
    refused(fcntl.fcntl, program, command, 1000, by=(errno.EINVAL,))
refused(os.dup2, program, 1000, by=(errno.EBADF,))
import resource
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
    assert False
except ValueError:
    pass
)py",
                                       SYS_execveat));
}

/// Names of calls that reach the kernel, other processes, or the way in which this one is held.
TEST_F(SandboxAttack, SystemCallsThatReachBeyondTheProcessAreRefused) {
  DANLU_REQUIRES_SANDBOX();
  std::string numbers;
  for (const int number : {SYS_clone,
                           SYS_clone3,
                           SYS_execve,
                           SYS_ptrace,
                           SYS_process_vm_readv,
                           SYS_process_vm_writev,
                           SYS_kill,
                           SYS_tkill,
                           SYS_rt_sigqueueinfo,
                           SYS_pidfd_open,
                           SYS_pidfd_getfd,
                           SYS_pidfd_send_signal,
                           SYS_socket,
                           SYS_socketpair,
                           SYS_connect,
                           SYS_bind,
                           SYS_sendmsg,
                           SYS_recvmsg,
                           SYS_mount,
                           SYS_umount2,
                           SYS_pivot_root,
                           SYS_chroot,
                           SYS_fsopen,
                           SYS_open_tree,
                           SYS_move_mount,
                           SYS_mount_setattr,
                           SYS_unshare,
                           SYS_setns,
                           SYS_bpf,
                           SYS_seccomp,
                           SYS_prctl,
                           SYS_keyctl,
                           SYS_add_key,
                           SYS_request_key,
                           SYS_perf_event_open,
                           SYS_userfaultfd,
                           SYS_io_uring_setup,
                           SYS_io_uring_enter,
                           SYS_io_setup,
                           SYS_memfd_create,
                           SYS_shmget,
                           SYS_msgget,
                           SYS_semget,
                           SYS_mq_open,
                           SYS_setuid,
                           SYS_setresuid,
                           SYS_setgroups,
                           SYS_capset,
                           SYS_setpriority,
                           SYS_sched_setaffinity,
                           SYS_personality,
                           SYS_init_module,
                           SYS_finit_module,
                           SYS_kexec_load,
                           SYS_reboot,
                           SYS_swapon,
                           SYS_quotactl,
                           SYS_settimeofday,
                           SYS_clock_settime,
                           SYS_adjtimex,
                           SYS_sethostname,
                           SYS_syslog,
                           SYS_acct,
                           SYS_name_to_handle_at,
                           SYS_open_by_handle_at,
                           SYS_inotify_init1,
                           SYS_fanotify_init,
                           SYS_eventfd2,
                           SYS_timer_create,
                           SYS_signalfd4,
                           SYS_splice,
                           SYS_vmsplice,
                           SYS_mbind,
                           SYS_move_pages,
                           SYS_migrate_pages,
                           SYS_mknodat,
                           SYS_symlinkat,
                           SYS_linkat,
                           SYS_fchmodat,
                           SYS_fchownat,
                           SYS_setxattr,
                           SYS_setsid,
                           SYS_setpgid,
                           SYS_setrlimit,
                           SYS_mlock,
                           SYS_mlockall,
                           SYS_remap_file_pages,
                           SYS_lookup_dcookie,
                           SYS_landlock_create_ruleset,
                           SYS_process_madvise,
                           SYS_pkey_alloc})
    numbers += fmt::format("{}, ", number);
  expect_harmless(sandbox, fmt::format(R"py(
for number in ({}):
    refused(call, number, 0, 0, 0, 0, 0)
    refused(call, number | 0x40000000, 0, 0, 0, 0, 0)
    refused(call, number, -1, -1, -1, -1, -1)
)py",
                                       numbers));
}

#ifdef __x86_64__
TEST_F(SandboxAttack, CallsByTheNumbersOfAnotherProcessorEndTheProgram) {
  DANLU_REQUIRES_SANDBOX();
  // mov eax, 20 (getpid of 32-bit programs); int 0x80; ret
  const CodeVerdict verdict = attack(sandbox, R"py(
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
)py");
  EXPECT_EQ(verdict.outcome, Outcome::kKilled) << verdict.detail;
  // Where the system knows no calls of 32-bit programs the instruction itself is the fault.
  EXPECT_THAT(verdict.detail,
              ::testing::AnyOf(StartsWith("killed: signal 31"), StartsWith("killed: signal 11")));
}
#endif

TEST_F(SandboxAttack, FilesAreWrittenNowhereButInAScratchFolderThatGoes) {
  DANLU_REQUIRES_SANDBOX();
  const test::TemporaryDirectory folder;
  const std::string attempt = fmt::format(R"py(
read_only = (errno.EROFS, errno.ENOENT)
for folder in ('/', '/tmp', '/home', '/root', '/usr', os.path.dirname(os.__file__), {:?}, '/dev/shm'):
    refused(open, os.path.join(folder, 'danlu_was_here'), 'w', by=read_only)
    refused(os.mkdir, os.path.join(folder, 'danlu_was_here'), by=read_only)
refused(open, sys.executable, 'r+b', by=read_only + (errno.EACCES,))
refused(os.remove, os.__file__, by=read_only)
refused(os.rename, '/program.py', '/other.py', by=read_only)
assert os.listdir('.') == [], 'of another program'
open('mine', 'w').write('x' * 1000)
# No more than four megabytes, in one file or in many.
full = (errno.EFBIG, errno.ENOSPC)
refused(lambda: open('big', 'wb').write(bytes(8 << 20)), by=full)
refused(lambda: [open('part%d' % i, 'wb').write(bytes(1 << 20)) for i in range(8)], by=full)
refused(lambda: [os.mkdir('folder%d' % i) for i in range(1000)], by=full)
import mmap
for name in os.listdir('.'):
    if os.path.isfile(name) and os.path.getsize(name):
        with open(name, 'rb') as file:
            refused(mmap.mmap, file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
)py",
                                          folder.path().string());
  for (int i = 0; i < 2; ++i) expect_harmless(sandbox, attempt);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  for (const char* path :
       {"/danlu_was_here", "/tmp/danlu_was_here", "/usr/danlu_was_here", "/scratch", "/program.py"})
    EXPECT_FALSE(fs::exists(path)) << path;
}

TEST_F(SandboxAttack, NothingOfTheSystemIsSeen) {
  DANLU_REQUIRES_SANDBOX();
  const test::TemporaryDirectory folder;
  const std::string secret = (folder / "secret").string();
  std::ofstream(secret) << "secret";
  fs::permissions(folder, fs::perms::all);
  ::setenv("DANLU_TEST_SECRET", "secret", 1);
  const int open_secret = ::open(secret.c_str(), O_RDONLY);  // not closed by exec
  expect_harmless(sandbox, fmt::format(R"py(
for path in ('/etc/passwd', '/etc/shadow', '/proc/1/environ', '/proc/self/maps', '/sys', '/dev/null',
             '/dev/mem', '/work', '/root/.bashrc', '/home', '/var', '/run', {:?}, {:?}):
    assert not os.path.exists(path), path
    refused(open, path, by=(errno.ENOENT,))
    refused(open, '/scratch/../../..' + path, by=(errno.ENOENT,))
assert list(os.environ) in ([], ['LD_LIBRARY_PATH']), os.environ
assert os.listdir('/../../..') == os.listdir('/')
assert os.listdir('/dev') == ['urandom']
assert os.listdir('/proc') == ['self'] and os.listdir('/proc/self') == ['exe']
assert not any('packages' in p and os.listdir(p) for p, _, _ in os.walk('/'))
for descriptor in range(5, 5000):
    refused(os.read, descriptor, 1, by=(errno.EBADF,))
for descriptor in (0, 3, 4):
    import stat
    assert stat.S_ISFIFO(os.fstat(descriptor).st_mode), descriptor
refused(os.symlink, '/etc/passwd', 'link')
refused(os.link, '/program.py', 'link')
refused(os.mkfifo, 'pipe')
refused(os.chroot, '/scratch')
assert os.getresuid() == (1000,) * 3 and os.getresgid() == (1000,) * 3
assert os.uname().nodename == 'sandbox'
)py",
                                       secret, folder.path().string()));
  ::close(open_secret);
  ::unsetenv("DANLU_TEST_SECRET");
}

int listening(int family, const sockaddr* address, socklen_t size) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  EXPECT_EQ(::bind(fd, address, size), 0);
  EXPECT_EQ(::listen(fd, 8), 0);
  return fd;
}

TEST_F(SandboxAttack, NoNetworkAndNoSocket) {
  DANLU_REQUIRES_SANDBOX();
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof loopback;
  const int web = listening(AF_INET, reinterpret_cast<sockaddr*>(&loopback), size);
  ::getsockname(web, reinterpret_cast<sockaddr*>(&loopback), &size);
  sockaddr_un abstract{};
  abstract.sun_family = AF_UNIX;
  const std::string name = fmt::format("danlu-test-{}", ::getpid());
  std::memcpy(abstract.sun_path + 1, name.data(), name.size());
  const int hidden =
      listening(AF_UNIX, reinterpret_cast<sockaddr*>(&abstract),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
  expect_harmless(sandbox, fmt::format(R"py(
import socket, urllib.request
refused(socket.create_connection, ('127.0.0.1', {0}))
refused(lambda: socket.socket(socket.AF_UNIX).connect('\0{1}'))
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        refused(socket.socket, family, kind)
refused(socket.socketpair)
refused(urllib.request.urlopen, 'http://127.0.0.1:{0}/', by=(errno.EPERM, None))
try:
    socket.getaddrinfo('localhost', 80)
    socket.getaddrinfo('example.org', 80)
    assert False
except socket.gaierror:
    pass
)py",
                                       ntohs(loopback.sin_port), name));
  for (const int server : {web, hidden}) {
    EXPECT_EQ(::accept(server, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EAGAIN);
    ::close(server);
  }
}

TEST_F(SandboxAttack, EndlessOutputIsCutAndEndsTheProgram) {
  DANLU_REQUIRES_SANDBOX();
  for (const char* stream : {"stdout", "stderr"}) {
    const CodeVerdict verdict =
        attack(sandbox, fmt::format("while True: sys.{}.write('passed' * 10000)", stream));
    EXPECT_EQ(verdict.outcome, Outcome::kKilled);
    EXPECT_EQ(verdict.detail, "killed: printed more than 8388608 bytes");
    EXPECT_EQ(verdict.output.size(), 65536u);
  }
  const CodeVerdict much = attack(sandbox, "sys.stdout.write('x' * 8000000)");
  EXPECT_EQ(much.outcome, Outcome::kPassed) << much.detail;
}

TEST_F(SandboxAttack, MemoryEndsAtTheLimit) {
  DANLU_REQUIRES_SANDBOX();
  for (const char* eater : {"x = bytes(1 << 40)", "x = bytearray(1 << 30)",
                            "x = []\nwhile True: x.append(bytes(1 << 20))",
                            "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 26))"}) {
    const CodeVerdict verdict = attack(sandbox, eater);
    EXPECT_NE(verdict.outcome, Outcome::kPassed) << eater;
    EXPECT_NE(verdict.outcome, Outcome::kTimedOut) << eater;
    EXPECT_THAT(verdict.detail, ::testing::AnyOf(StartsWith("failed: MemoryError"),
                                                 HasSubstr("Cannot allocate memory")))
        << eater;
  }
  // Half of it is there for the program.
  const CodeVerdict half = attack(sandbox, "x = bytearray(1 << 29)");
  EXPECT_EQ(half.outcome, Outcome::kPassed) << half.detail;
}

TEST_F(SandboxAttack, TimeIsUpWhateverTheProgramIgnores) {
  DANLU_REQUIRES_SANDBOX();
  const std::vector<std::string> programs = {
      "while True: pass",
      "x = 10 ** 10 ** 9",  // one instruction of the interpreter
      "import time; time.sleep(1000)",
      "import signal\nfor s in set(range(1, 65)) - {9, 19, 32, 33}:\n"
      "    signal.signal(s, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n"
      "    except BaseException: pass",
      "import os, time; os.closerange(0, 64); time.sleep(1000)",
      "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
      "import os\nwhile True: os.write(4, b'passed')",
  };
  size_t num_done = 0;
  sandbox.run_all(programs, programs.size(), [&](size_t i, const CodeVerdict& verdict) {
    ++num_done;
    EXPECT_EQ(verdict.outcome, Outcome::kTimedOut) << programs[i] << "\n" << verdict.detail;
    EXPECT_EQ(verdict.detail, "timed out");
  });
  EXPECT_EQ(num_done, programs.size());
}

TEST_F(SandboxAttack, SignalsReachNobody) {
  DANLU_REQUIRES_SANDBOX();
  expect_harmless(sandbox, fmt::format(R"py(
import signal
assert os.getppid() == 0 and os.getpid() == 1
for target in (1, 0, -1, {0}, {1}, os.getppid()):
    refused(os.kill, target, signal.SIGKILL)
    refused(call, {2}, {0}, {0}, 9)
refused(os.killpg, 0, signal.SIGKILL, by=(errno.EPERM,))
)py",
                                       ::getpid(), ::getppid(), SYS_tgkill));
}

TEST_F(SandboxAttack, OnlyTheEndOfTheProgramPasses) {
  DANLU_REQUIRES_SANDBOX();
  const std::vector<std::pair<std::string, const char*>> forgeries = {
      {"sys.exit(0)", "failed: SystemExit: 0"},
      {"raise SystemExit", "failed: SystemExit: "},
      {"raise KeyboardInterrupt", "failed: KeyboardInterrupt: "},
      {"os._exit(0)", "failed: ended before its last statement (exit code 0)"},
      {"print('passed 0 0'); sys.stdout.flush(); os._exit(0)", "failed: ended before"},
      {"os.write(4, b'passed'); os._exit(0)", "failed: ended before"},
      {"os.write(4, b'0123456789abcdef' * 2); os._exit(0)", "failed: ended before"},
      {"for i in range(64):\n    try: os.write(i, b'passed 0 0\\n')\n    except OSError: pass\n"
       "os._exit(0)",
       "failed: ended before"},
      {"os.closerange(0, 64)", "failed: ended before"},
      {"import atexit; atexit.register(os._exit, 0); assert False", "failed: AssertionError: "},
      {"os.abort()", "killed: signal "},
      {"ctypes.string_at(0)", "killed: signal 11"},
      {"def f(): f()\nf()", "failed: RecursionError"},
      {"x = ", "failed: SyntaxError"},
      {std::string(1, '\0'), "failed: "},
      {"\xff\xfe", "failed: UnicodeDecodeError"},
      {"raise ValueError('\\ud800')", "failed: ValueError: ?"},
      {"exit()", "failed: NameError"},
      {"input()", "failed: EOFError"},
      {"assert __name__ == '__main__'", "failed: AssertionError"},
  };
  for (const auto& [text, says] : forgeries) {
    const CodeVerdict verdict = attack(sandbox, text);
    EXPECT_NE(verdict.outcome, Outcome::kPassed) << text;
    EXPECT_THAT(verdict.detail, StartsWith(says)) << text;
  }
  const CodeVerdict deep =
      attack(sandbox, "sys.setrecursionlimit(10 ** 9)\ndef f(x): return f([x]) or x\nf(0)");
  EXPECT_NE(deep.outcome, Outcome::kPassed) << deep.detail;
  EXPECT_EQ(sandbox.run("").outcome, Outcome::kPassed);
  EXPECT_EQ(sandbox.run("print('é', '中')").output, "é 中\n");
  const std::string large = "x = '" + std::string(3 << 20, 'y') + "'\nassert len(x) == 3 << 20";
  EXPECT_EQ(sandbox.run(large).outcome, Outcome::kPassed);
}

TEST_F(SandboxAttack, ProgramsOfManyThreadsDoNotMeet) {
  DANLU_REQUIRES_SANDBOX();
  std::vector<std::string> programs;
  for (int i = 0; i < 24; ++i)
    programs.push_back(
        fmt::format("import os\nassert os.listdir('.') == []\n"
                    "open('x', 'w').write('{0}')\nassert {0} % 3",
                    i));
  std::vector<int> seen(programs.size());
  sandbox.run_all(programs, 6, [&](size_t i, const CodeVerdict& verdict) {
    ++seen[i];
    EXPECT_EQ(verdict.outcome, i % 3 ? Outcome::kPassed : Outcome::kFailed) << verdict.detail;
  });
  EXPECT_THAT(seen, ::testing::Each(1));
}

}  // namespace
}  // namespace danlu::eval
