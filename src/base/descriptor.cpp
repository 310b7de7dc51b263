#include "base/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace danlu {

int open_input(const std::filesystem::path& path) {
  // Without O_NONBLOCK a named pipe would wait here for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    throw IoError(tr("{}: cannot open: {}", path.string(), std::strerror(errno)));
  }
  struct stat info{};
  struct statfs system{};
  constexpr decltype(system.f_type) kPipeFs = 0x50495045;  // linux/magic.h
  ::fstat(fd, &info);
  const bool null = info.st_rdev == makedev(1, 3);
  const bool has_an_end = S_ISFIFO(info.st_mode)
                              ? ::fstatfs(fd, &system) == 0 && system.f_type == kPipeFs
                              : !S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode);
  if (has_an_end || null || ::isatty(fd)) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  ::close(fd);
  throw IoError(tr("{}: {}, not a regular file", path.string(),
                   S_ISFIFO(info.st_mode) ? "a named pipe" : "a device"),
                tr("write what it holds into a file first"));
}

ssize_t read_full(int fd, void* to, size_t size_bytes) {
  size_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = ::read(fd, static_cast<char*>(to) + done, size_bytes - done);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

bool write_all(int fd, const void* from, size_t size_bytes) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t put = ::write(fd, static_cast<const char*>(from) + done, size_bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

void write_all_or_throw(int fd, std::string_view bytes, const std::filesystem::path& path,
                        const std::string& no_space) {
  if (write_all(fd, bytes.data(), bytes.size())) return;
  const int code = errno;
  throw IoError(tr("{}: cannot write: {}", path.string(), std::strerror(code)),
                hint_of_full(code, no_space));
}

bool sync_descriptor(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
  }
  return true;
}

void allow_most_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool has_name(int fd, const char* path) {
  struct stat ours{}, named{};
  return ::fstat(fd, &ours) == 0 && ::lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

}  // namespace danlu
