#include "base/temporary.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"

namespace danlu {
namespace {

constexpr const char* kAsideEnding = ".old";
constexpr const char* kUnknownMachine = "0000000000000000";
constexpr int kTries = 64;  ///< a sweeper takes one rarely; two of them in a row, hardly ever

/// A lock says something only among processes of one running kernel, and a name of a host only with
/// its boot id which of them that was.
const std::string& machine() {
  static const std::string id = [] {
    std::string boot;
    if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> boot))
      return std::string(kUnknownMachine);
    return fmt::format("{:016x}", hash_bytes(host_name() + "\n" + boot));
  }();
  return id;
}

fs::path name_for(const fs::path& sibling, Temporary::Kind kind) {
  // Names end at 255 bytes on every common file system; the rest is for what we add.
  constexpr size_t kMaxStemBytes = 190;
  return sibling.parent_path() / fmt::format(".{}.tmp-{}-{}{}",
                                             sibling.filename().string().substr(0, kMaxStemBytes),
                                             machine(), unique_suffix(),
                                             kind == Temporary::Kind::kAside ? kAsideEnding : "");
}

int make(const fs::path& path, Temporary::Kind kind) {
  if (kind == Temporary::Kind::kFile)
    return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (::mkdir(path.c_str(), 0777) != 0) return -1;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) errno = EAGAIN;  // a sweeper has it already
  return fd;
}

enum class Lock { kTaken, kHeldByAnother, kUnknown };

Lock try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Lock::kHeldByAnother : Lock::kUnknown;
  }
  return Lock::kTaken;
}

/// The machine that a temporary's name tells of; empty for every other name.
std::string machine_of(std::string_view name) {
  constexpr size_t kHex = 16;
  constexpr std::string_view kMark = ".tmp-";
  const auto is_hex = [](std::string_view text) {
    return text.size() == kHex && text.find_first_not_of("0123456789abcdef") == text.npos;
  };
  if (name.ends_with(kAsideEnding)) name.remove_suffix(std::strlen(kAsideEnding));
  const size_t mark = name.rfind(kMark);
  if (!name.starts_with('.') || mark == name.npos || mark < 2) return "";
  const std::string_view tag = name.substr(mark + kMark.size());
  if (tag.size() < 2 * kHex + 3 || tag[kHex] != '-' || tag[tag.size() - kHex - 1] != '-') return "";
  const std::string_view process = tag.substr(kHex + 1, tag.size() - 2 * kHex - 2);
  if (process.find_first_not_of("0123456789") != process.npos) return "";
  if (!is_hex(tag.substr(0, kHex)) || !is_hex(tag.substr(tag.size() - kHex))) return "";
  return std::string(tag.substr(0, kHex));
}

/// Puts back what has no successor. false if something cannot be: it must stay where it is.
bool restore(const fs::path& aside) {
  std::error_code error;
  for (fs::directory_iterator at(aside, error), end; !error && at != end; at.increment(error)) {
    const fs::path place = aside.parent_path() / at->path().filename();
    std::error_code unknown;
    const fs::file_type there = fs::symlink_status(place, unknown).type();
    if (there == fs::file_type::none) return false;
    if (there == fs::file_type::not_found && ::rename(at->path().c_str(), place.c_str()) != 0)
      return false;
  }
  return !error;
}

enum class Owner { kDead, kLiving, kUnknown };

/// What is found dead is removed while its lock is held: nobody else, not even who makes it at this
/// moment, can take it for its own.
Owner sweep(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? Owner::kDead : Owner::kUnknown;
  struct stat info{};
  Owner owner = Owner::kUnknown;
  if (::fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
    const Lock lock = try_lock(fd);
    if (lock == Lock::kHeldByAnother) owner = Owner::kLiving;
    if (lock == Lock::kTaken) {
      owner = Owner::kDead;
      const bool is_aside = S_ISDIR(info.st_mode) && path.native().ends_with(kAsideEnding);
      std::error_code ignored;
      if (!has_name(fd, path.c_str())) {
        // Another sweeper was here, or it got its name.
      } else if (is_aside && !restore(path)) {
        owner = Owner::kUnknown;
      } else {
        fs::remove_all(path, ignored);
      }
    }
  }
  ::close(fd);
  return owner;
}

}  // namespace

Temporary::Temporary(const fs::path& sibling, Kind kind) {
  const fs::path parent = sibling.parent_path();
  sweep_temporaries_once(parent.empty() ? "." : parent);
  for (int i = 0; i < kTries; ++i) {
    path_ = name_for(sibling, kind);
    fd_ = make(path_, kind);
    if (fd_ < 0 && errno != EAGAIN) break;
    if (fd_ < 0) continue;
    // Between making and locking it a sweeper may have it: then it is gone, or about to be.
    const Lock lock = try_lock(fd_);
    if (lock == Lock::kUnknown || (lock == Lock::kTaken && has_name(fd_, path_.c_str()))) return;
    ::close(std::exchange(fd_, -1));
    errno = EAGAIN;
  }
  const int code = errno;
  ::rmdir(path_.c_str());
  path_.clear();
  errno = code;
}

Temporary::Temporary(Temporary&& other) noexcept
    : path_(std::exchange(other.path_, {})), fd_(std::exchange(other.fd_, -1)) {}

Temporary::~Temporary() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (fd_ >= 0) ::close(fd_);
}

int Temporary::release() {
  path_.clear();
  return std::exchange(fd_, -1);
}

void sweep_temporaries(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (!machine_of(at->path().filename().native()).empty()) found.push_back(at->path());
  std::string kept, aside;
  for (const fs::path& path : found) {
    const std::string of = machine_of(path.filename().native());
    const bool is_ours = of == machine() && of != kUnknownMachine;
    if (is_ours && sweep(path) != Owner::kUnknown) continue;
    std::string& names = path.native().ends_with(kAsideEnding) ? aside : kept;
    names += (names.empty() ? "" : ", ") + path.filename().string();
  }
  if (!aside.empty()) {
    log::warning(
        "{}: {} holds what was being replaced: move it back if it is missing and no danlu works "
        "there",
        directory.string(), aside);
  }
  if (kept.empty()) return;
  log::info(
      "{}: left there by another machine or before a restart, or still being written: {}; remove "
      "them if no danlu works there",
      directory.string(), kept);
}

void sweep_temporaries_once(const fs::path& directory) {
  static std::mutex mutex;
  static std::set<fs::path> swept;
  std::error_code error;
  const fs::path place = fs::canonical(directory, error);
  if (error) return;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!swept.insert(place).second) return;
  }
  sweep_temporaries(place);
}

int open_nameless(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  const Temporary named(directory / "nameless", Temporary::Kind::kFile);
  return named.fd() < 0 ? -1 : ::fcntl(named.fd(), F_DUPFD_CLOEXEC, 0);
}

}  // namespace danlu
