#include "eval/sandbox/runner/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace danlu::eval::runner {
using namespace sandbox_protocol;

void drop_capabilities() {
  // No user id, and no file's capabilities, are worth anything from here on.
  constexpr unsigned long kBits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                  SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  require(::prctl(PR_SET_SECUREBITS, kBits, 0, 0, 0) == 0, kNoCapabilities);
  // EINVAL: the kernel knows none of that number, nor any higher one.
  for (unsigned long capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0;)
    ++capability;
  require(errno == EINVAL, kNoCapabilities);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  require(::syscall(SYS_capset, &header, none) == 0, kNoCapabilities);
  require(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, kNoCapabilities);
  require(::syscall(SYS_capget, &header, none) == 0, kNoCapabilities);
  errno = EPERM;
  for (const auto& left : none)
    require((left.effective | left.permitted | left.inheritable) == 0, kNoCapabilities);
  require(::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, kNoCapabilities);
}

void limit_resources(const Request& request) {
  struct Limit {
    int resource;
    int64_t value;
  };
  constexpr int64_t kStackBytes = 8 << 20;
  for (const Limit& limit : std::initializer_list<Limit>{
           // The clock on the wall ends it sooner; this holds should nobody look at that.
           {RLIMIT_CPU, request.timeout_ms / 1000 + 2},
           {RLIMIT_AS, request.memory_bytes},
           {RLIMIT_STACK, kStackBytes},
           {RLIMIT_FSIZE, request.file_bytes},
           {RLIMIT_NOFILE, kMaxDescriptors},
           {RLIMIT_NPROC, 1},
           {RLIMIT_CORE, 0},
           {RLIMIT_MEMLOCK, 0},
           {RLIMIT_MSGQUEUE, 0},
           {RLIMIT_SIGPENDING, 64},
           {RLIMIT_NICE, 0},
           {RLIMIT_RTPRIO, 0},
       }) {
    const auto value = static_cast<rlim_t>(limit.value);
    const rlimit both{value, value};
    const auto which = static_cast<__rlimit_resource_t>(limit.resource);
    rlimit now{};
    if (::setrlimit(which, &both) == 0) continue;
    // Who started us may have less than that: it stays so.
    require(::getrlimit(which, &now) == 0 && now.rlim_max <= value, kLimits);
  }
}

}  // namespace danlu::eval::runner
