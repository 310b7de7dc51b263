#include "base/descriptor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace danlu {

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

bool sync_descriptor(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
  }
  return true;
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
