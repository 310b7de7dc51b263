#include "eval/sandbox/runner/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace danlu::eval::runner {
using namespace sandbox_protocol;
namespace {

/// Where the new root is put together: hides nothing that is to be seen in it.
constexpr const char* kNewRoot = "/proc";
constexpr const char* kRandomDevice = "/dev/urandom";

void make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
    const std::string folder = kNewRoot + path.substr(0, slash);
    require(::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST, kReadOnlyRoot);
  }
}

/// What a mount has and may not lose: in a user namespace the system refuses to take it away.
unsigned long flags_of(const std::string& path) {
  struct statvfs about{};
  require(::statvfs(path.c_str(), &about) == 0, kReadOnlyRoot);
  unsigned long flags = 0;
  if (about.f_flag & ST_NOATIME) flags |= MS_NOATIME;
  if (about.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
  if (about.f_flag & ST_RELATIME) flags |= MS_RELATIME;
  if (about.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
  if (about.f_flag & ST_NODEV) flags |= MS_NODEV;
  return flags;
}

void make_read_only(const std::string& path, unsigned long more_flags) {
  require(::mount(nullptr, path.c_str(), nullptr,
                  MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | more_flags, nullptr) == 0,
          kReadOnlyRoot);
}

/// Not recursive: what is mounted below stays outside. `flags`: of the mount, besides its own.
void show(const std::string& path, unsigned long flags) {
  struct stat about{};
  require(::stat(path.c_str(), &about) == 0, kReadOnlyRoot);
  const std::string target = kNewRoot + path;
  make_folders(path);
  if (S_ISDIR(about.st_mode)) {
    require(::mkdir(target.c_str(), 0755) == 0 || errno == EEXIST, kReadOnlyRoot);
  } else {
    const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444);
    require(fd >= 0, kReadOnlyRoot);
    ::close(fd);
  }
  require(::mount(path.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) == 0, kReadOnlyRoot);
  make_read_only(target, flags_of(target) | flags);
}

void mount_memory(const std::string& target, unsigned long flags, const std::string& options) {
  require(::mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | flags,
                  options.c_str()) == 0,
          kReadOnlyRoot);
}

void store_program(const std::string& text) {
  const std::string path = std::string(kNewRoot) + kProgramFile;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  require(fd >= 0, kReadOnlyRoot);
  for (size_t put = 0; put < text.size();) {
    const ssize_t n = ::write(fd, text.data() + put, text.size() - put);
    require(n > 0, kReadOnlyRoot);
    put += static_cast<size_t>(n);
  }
  ::close(fd);
}

/// All that there is of /proc: from this link the dynamic loader knows what $ORIGIN means, by which
/// some interpreters name their own library.
void name_executable(const std::string& interpreter) {
  const std::string link = std::string(kNewRoot) + "/proc/self/exe";
  make_folders("/proc/self/exe");
  require(::symlink(interpreter.c_str(), link.c_str()) == 0, kReadOnlyRoot);
}

}  // namespace

ProcFolder::ProcFolder() : fd_(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require(fd_ >= 0, kUserNamespace);
}

std::string ProcFolder::namespace_id(const char* name, Layer layer) const {
  char id[64];
  const ssize_t n = ::readlinkat(fd_, (std::string("self/ns/") + name).c_str(), id, sizeof id);
  require(n > 0, layer);
  return {id, static_cast<size_t>(n)};
}

void ProcFolder::leave(int flag, const char* name, Layer layer) const {
  const std::string before = namespace_id(name, layer);
  require(::unshare(flag) == 0, layer);
  // The namespace of the next child has no process, and no id, yet.
  if (flag == CLONE_NEWPID) return;
  errno = EPERM;
  require(namespace_id(name, layer) != before, layer);
}

void ProcFolder::write(const std::string& name, const std::string& text) const {
  const int fd = ::openat(fd_, name.c_str(), O_WRONLY | O_CLOEXEC);
  require(fd >= 0, kUserNamespace);
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(fd);
  errno = error;
  require(whole, kUserNamespace);
}

void ProcFolder::map_nobody(pid_t process) const {
  const std::string folder = std::to_string(process);
  const std::string map = std::to_string(kInsideUser) + " " + std::to_string(kNobody) + " 1";
  write(folder + "/uid_map", map);
  write(folder + "/gid_map", map);
}

void ProcFolder::map_self() const {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  leave(CLONE_NEWUSER, "user", kUserNamespace);
  write("self/setgroups", "deny");
  write("self/uid_map", std::to_string(kInsideUser) + " " + std::to_string(user) + " 1");
  write("self/gid_map", std::to_string(kInsideUser) + " " + std::to_string(group) + " 1");
}

void leave_namespaces(const ProcFolder& proc, bool is_root) {
  if (!is_root) proc.map_self();
  proc.leave(CLONE_NEWNS, "mnt", kMountNamespace);
  proc.leave(CLONE_NEWPID, "pid_for_children", kProcessNamespace);
  proc.leave(CLONE_NEWNET, "net", kNetworkNamespace);
  proc.leave(CLONE_NEWIPC, "ipc", kIpcNamespace);
  proc.leave(CLONE_NEWUTS, "uts", kHostNamespace);
  require(::sethostname(kHostName, strlen(kHostName)) == 0 && ::setdomainname("", 0) == 0,
          kHostNamespace);
  proc.leave(CLONE_NEWCGROUP, "cgroup", kGroupNamespace);
}

void make_root(const Request& request) {
  require(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, kReadOnlyRoot);
  const std::string size = std::to_string(request.program.size() + (1 << 20));
  mount_memory(kNewRoot, 0, "mode=755,nr_inodes=4096,size=" + size);
  for (const std::string& path : request.binds) show(path, MS_NODEV);
  for (const std::string& path : request.masks)
    mount_memory(kNewRoot + path, MS_RDONLY, "mode=755,nr_inodes=2,size=4096");
  // Interpreters that were built for old systems have no other source of random numbers.
  if (::access(kRandomDevice, R_OK) == 0) show(kRandomDevice, MS_NOEXEC);
  name_executable(request.interpreter);
  store_program(request.program);
  const std::string scratch = std::string(kNewRoot) + kScratch;
  require(::mkdir(scratch.c_str(), 0755) == 0 || errno == EEXIST, kReadOnlyRoot);
  mount_memory(scratch, 0, "mode=1777,nr_inodes=256,size=" + std::to_string(request.file_bytes));
  make_read_only(kNewRoot, MS_NOEXEC | MS_NODEV);
  require(::chdir(kNewRoot) == 0, kReadOnlyRoot);
  struct stat made{}, is{};
  require(::stat(".", &made) == 0, kReadOnlyRoot);
  require(::syscall(SYS_pivot_root, ".", ".") == 0, kReadOnlyRoot);
  require(::umount2(".", MNT_DETACH) == 0, kReadOnlyRoot);
  require(::chdir("/") == 0 && ::stat("/", &is) == 0, kReadOnlyRoot);
  errno = EPERM;
  require(is.st_dev == made.st_dev && is.st_ino == made.st_ino, kReadOnlyRoot);
}

}  // namespace danlu::eval::runner
