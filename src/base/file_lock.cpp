#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace danlu {
namespace {

constexpr auto kRetryInterval = std::chrono::milliseconds(50);

[[noreturn]] void fail_to(const char* doing, const fs::path& file, int code) {
  throw IoError(tr("{}: cannot {}: {}", file.string(), doing, std::strerror(code)));
}

/// Only for messages: a full disk must not stop anybody here.
void write_holder(int fd) {
  const std::string text = fmt::format("{} {}\n", ::getpid(), host_name());
  if (::ftruncate(fd, 0) == 0) {
    [[maybe_unused]] const ssize_t put = ::pwrite(fd, text.data(), text.size(), 0);
  }
}

}  // namespace

std::optional<FileLock> FileLock::try_take(const fs::path& file) {
  for (;;) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) fail_to("create", file, errno);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      // The one before us may have removed the file that we opened.
      if (has_name(fd, file.c_str())) {
        write_holder(fd);
        return FileLock(fd, file);
      }
      ::close(fd);
      continue;
    }
    const int code = errno;
    ::close(fd);
    if (code == EWOULDBLOCK) return std::nullopt;
    if (code == EINTR) continue;
    if (code != ENOLCK && code != EOPNOTSUPP && code != ENOSYS) fail_to("lock", file, code);
    log::warning("{}: this file system has no locks; start no second process on it",
                 file.parent_path().string());
    return FileLock(-1, file);
  }
}

FileLock FileLock::wait_for(const fs::path& file, const std::string& what) {
  for (bool told = false;; std::this_thread::sleep_for(kRetryInterval)) {
    if (auto lock = try_take(file)) return std::move(*lock);
    if (!std::exchange(told, true)) {
      log::info("{} works on {}; waiting for it to finish", holder(file), what);
    }
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("stopped while waiting for {}", holder(file)));
  }
}

std::string FileLock::holder(const fs::path& file) {
  std::ifstream in(file);
  int64_t pid = 0;
  std::string host;
  if (!(in >> pid >> host)) return "another process";
  if (host == host_name()) return fmt::format("process {}", pid);
  return fmt::format("process {} on {}", pid, host);
}

bool FileLock::is_held() const { return fd_ < 0 || has_name(fd_, file_.c_str()); }

FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), file_(std::exchange(other.file_, {})) {}

FileLock::~FileLock() {
  if (file_.empty()) return;
  // Removed while it is still held: who waits for it sees that the name is gone and makes it anew.
  // Its directory may have been replaced: another's of that name stays.
  if (fd_ < 0 || has_name(fd_, file_.c_str())) ::unlink(file_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace danlu
