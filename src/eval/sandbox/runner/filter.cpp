#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#ifdef __x86_64__
#include <asm/prctl.h>
#endif

#include <initializer_list>

#include "eval/sandbox/runner/privileges.h"

namespace danlu::eval::runner {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kProcessor = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kProcessor = AUDIT_ARCH_AARCH64;
#else
#error "the numbers of system calls are not known for this processor"
#endif

/// Calls that are let through whatever their arguments are: they reach nothing but the process
/// itself and the files of its root.
constexpr uint32_t kAllowed[] = {
    // Files.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_openat,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_chdir,
    SYS_getdents64,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_ftruncate,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_umask,
    // Memory.
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_brk,
    SYS_madvise,
    // Time and waiting.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getitimer,
    SYS_setitimer,
    SYS_ppoll,
    SYS_pselect6,
    SYS_futex,
    SYS_sched_yield,
    // Itself.
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_getpgid,
    SYS_getsid,
    SYS_getrusage,
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    SYS_sched_getaffinity,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef __x86_64__
    // Older forms, which other processors do not have.
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_time,
    SYS_alarm,
    SYS_getpgrp,
#endif
};

class FilterProgram {
 public:
  FilterProgram() {
    load(offsetof(seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, kProcessor, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
  }

  void allow(uint32_t call) {
    add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }

  struct Argument {
    int index;
    std::initializer_list<uint32_t> may_be;
    /// The kernel takes all 64 bits of it, not an int.
    bool is_wide = false;
  };

  /// Does `action` with `call` if each of `arguments` is one of what it may be.
  void allow_if(uint32_t call, std::initializer_list<Argument> arguments,
                uint32_t action = SECCOMP_RET_ALLOW) {
    const size_t begin = code_.size();
    add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 0);
    for (const Argument& argument : arguments) {
      const auto offset =
          static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t) * argument.index);
      if (argument.is_wide) {
        load(offset + sizeof(uint32_t));  // both processors keep the low half first
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        add(BPF_RET | BPF_K, kRefused);
      }
      load(offset);
      auto left = static_cast<uint8_t>(argument.may_be.size());
      for (const uint32_t value : argument.may_be) add(BPF_JMP | BPF_JEQ | BPF_K, value, left--, 0);
      add(BPF_RET | BPF_K, kRefused);
    }
    add(BPF_RET | BPF_K, action);
    code_[begin].jf = static_cast<uint8_t>(code_.size() - begin - 1);
  }

  void install() {
    add(BPF_RET | BPF_K, kRefused);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    require(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0,
            sandbox_protocol::kSystemCalls);
  }

 private:
  static constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | EPERM;

  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void add(int code, uint32_t k, uint8_t if_true = 0, uint8_t if_false = 0) {
    code_.push_back({static_cast<uint16_t>(code), if_true, if_false, k});
  }

  std::vector<sock_filter> code_;
};

}  // namespace

void filter_system_calls() {
  FilterProgram filter;
  for (const uint32_t call : kAllowed) filter.allow(call);
  // No argument can tell the runner's own call from one of the program: the path is a pointer, and
  // for an absolute path the kernel does not look at the descriptor. Who may is the tracer.
  filter.allow_if(SYS_execveat, {{0, {kInterpreterDescriptor}}, {4, {AT_EMPTY_PATH}}},
                  SECCOMP_RET_TRACE);
  filter.allow_if(SYS_fcntl, {{1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL}}});
  filter.allow_if(SYS_ioctl, {{1, {TCGETS, TIOCGWINSZ, FIOCLEX, FIONCLEX}}});
  // Limits are read, not set; a signal goes to the process itself, which is number 1 in its
  // namespace (abort).
  filter.allow_if(SYS_prlimit64, {{0, {0}}, {2, {0}, true}});
  filter.allow_if(SYS_tgkill, {{0, {1}}});
#ifdef __x86_64__
  filter.allow_if(SYS_getrlimit, {{0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}});
  filter.allow_if(SYS_arch_prctl, {{0, {ARCH_SET_FS}}});
#endif
  filter.install();
}

}  // namespace danlu::eval::runner
