#include "eval/sandbox/probe.h"

#include <fmt/format.h>
#include <sys/syscall.h>

#include <charconv>

#include "eval/sandbox/protocol.h"

namespace danlu::eval {
namespace {

/// Every refusal must be the one of the layer in question: a fork that only a limit refuses
/// (EAGAIN) shows that the filter is not there.
constexpr const char* kProbeText = R"py(
import errno, os, sys

class Missing(Exception):
    pass

def need(layer, holds):
    if not holds:
        raise Missing(layer)

def refusal(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno
    return None

def try_fork():
    if os.fork() == 0:
        os._exit(0)

def limit(which):
    return resource.getrlimit(getattr(resource, which))

need({user}, os.getresuid() == ({inside},) * 3 and os.getresgid() == ({inside},) * 3)
need({processes}, os.getpid() == 1 and os.getppid() == 0)
need({host}, os.uname().nodename == 'sandbox')
need({root}, os.listdir('/proc/self') == ['exe'] and not os.path.exists('/etc/passwd'))
need({root}, refusal(open, '/probe', 'w') == errno.EROFS)
need({root}, refusal(open, os.path.join(os.path.dirname(os.__file__), 'probe'), 'w') == errno.EROFS)
need({calls}, refusal(try_fork) == errno.EPERM)
need({calls}, refusal(os.execv, sys.executable, ['python3', '-c', '']) == errno.EPERM)
try:
    import ctypes
    system_call = ctypes.CDLL(None, use_errno=True).syscall
except (ImportError, OSError, AttributeError):
    system_call = None
if system_call:
    # The runner's own call, with a path for which the kernel looks at no descriptor: the file is not
    # executable, so that a filter that is asked too late is seen as well (EACCES).
    for path in b'/program.py', b'':
        ctypes.set_errno(0)
        system_call({execveat}, {descriptor}, path, None, None, 0x1000)
        need({calls}, ctypes.get_errno() == errno.ENOSYS)
need({calls}, refusal(os.kill, 1, 0) == errno.EPERM)
need({calls}, refusal(os.chmod, '.', 0o700) == errno.EPERM)
try:
    import _socket
    need({calls}, refusal(_socket.socket) == errno.EPERM)
except ImportError:
    pass
import mmap
need({limits}, refusal(mmap.mmap, -1, {memory}) == errno.ENOMEM)
try:
    import resource
except ImportError:
    resource = None
if resource:
    need({limits}, limit('RLIMIT_NPROC')[1] == 1 and limit('RLIMIT_CORE') == (0, 0))
    need({limits}, 0 < limit('RLIMIT_AS')[1] <= {memory} and limit('RLIMIT_CPU')[1] > 0)
)py";

}  // namespace

std::string sandbox_probe(int64_t memory_bytes) {
  using namespace sandbox_protocol;
  return fmt::format(fmt::runtime(kProbeText), fmt::arg("user", int{kUnprivilegedUser}),
                     fmt::arg("inside", kInsideUser), fmt::arg("processes", int{kProcessNamespace}),
                     fmt::arg("host", int{kHostNamespace}), fmt::arg("root", int{kReadOnlyRoot}),
                     fmt::arg("calls", int{kSystemCalls}), fmt::arg("limits", int{kLimits}),
                     fmt::arg("memory", memory_bytes), fmt::arg("execveat", SYS_execveat),
                     fmt::arg("descriptor", kInterpreterDescriptor));
}

int missing_layer(const std::string& detail) {
  constexpr std::string_view kSays = "failed: Missing: ";
  if (!detail.starts_with(kSays)) return -1;
  int layer = -1;
  std::from_chars(detail.data() + kSays.size(), detail.data() + detail.size(), layer);
  return layer >= 0 && layer < sandbox_protocol::kNumLayers ? layer : -1;
}

}  // namespace danlu::eval
