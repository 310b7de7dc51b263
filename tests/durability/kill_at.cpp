// tests/durability/kill_at.cpp: a library that, preloaded into a program, counts what it does to
// the files below one directory and kills it (SIGKILL) in front of one of these operations.
//
// An operation is: opening for writing, making or naming a file or directory (open, mkdir, rename,
// link, symlink), taking a name away (unlink, rmdir), changing content or size (write, truncate,
// fallocate, sendfile, copy_file_range), and syncing. The k of a write does its first half before
// it dies. Threads share the count. What stdio writes goes past us.
//
//   DANLU_KILL_ROOT    the directory, canonical
//   DANLU_KILL_COUNT   a file of eight bytes: the count, kept across exec and death
//   DANLU_KILL_AT      in front of which operation, from 1; 0 or unset: never
//   DANLU_KILL_SYNCED  a directory: what a loss of power would leave is recorded there
//
// The power that is lost takes with it all that was not synced. A file's content is that of its
// last fsync or fdatasync; of one that never was, nothing, or what it held when the program began.
// The names in a directory are those of its last fsync, or those when the program began. Nothing is
// implied: neither does the sync of a file sync its name, nor that of a directory what is below it.
// Real file systems keep more. Recorded as f-<inode> (content) and d-<inode> (a line "type inode
// name" or "l inode name NUL target" each, ended by NUL); an inode keeps its number because
// whatever loses a name stays open. tests/durability/campaign.cpp builds the tree that is left from
// that.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

template <typename F>
F real(const char* name, F) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name) real(#name, &::name)

/// Ours, not the program's: what is done inside is not looked at.
thread_local bool is_inside = false;
struct Inside {
  Inside() { is_inside = true; }
  ~Inside() { is_inside = false; }
};

std::recursive_mutex& mutex() {
  static auto* one = new std::recursive_mutex;  // used until the last moment of the process
  return *one;
}

class Recorder {
 public:
  static Recorder& get() {
    static auto* one = new Recorder;
    return *one;
  }
  bool is_on() const { return count_ != nullptr; }
  bool records() const { return !store_.empty(); }

  bool is_below_root(const std::string& path) const {
    return path.starts_with(root_) && (path.size() == root_.size() || path[root_.size()] == '/');
  }
  bool is_watched(int fd) const {
    char name[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t size = ::readlink(link.c_str(), name, sizeof name);
    return size > 0 && is_below_root({name, static_cast<size_t>(size)});
  }
  /// The last part of a name is not followed.
  bool is_watched(int at, const char* path) const {
    std::string full = path;
    if (full.empty() || full[0] != '/') {
      const std::string base =
          at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(at);
      full = base + "/" + full;
    }
    while (full.size() > 1 && full.back() == '/') full.pop_back();
    const size_t slash = full.rfind('/');
    char parent[PATH_MAX];
    if (!::realpath(full.substr(0, slash + 1).c_str(), parent)) return false;
    return is_below_root(parent + full.substr(slash));
  }

  /// Whether this operation is the last.
  bool is_due() { return ++*count_ == kill_at_; }
  [[noreturn]] static void die() {
    for (;;) ::kill(::getpid(), SIGKILL);
  }

  void record(int fd) const {
    struct stat info{};
    if (::fstat(fd, &info) != 0) return;
    if (S_ISREG(info.st_mode)) record_file(fd, info.st_ino);
    if (S_ISDIR(info.st_mode)) record_names(fd, info.st_ino);
  }
  /// Its inode's number is not to be given to another.
  static void keep(int at, const char* path) {
    const int fd = ::openat(at, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    ::fcntl(fd, F_DUPFD_CLOEXEC, 512);
    ::close(fd);
  }

 private:
  Recorder() {
    const char* root = std::getenv("DANLU_KILL_ROOT");
    const char* count = std::getenv("DANLU_KILL_COUNT");
    if (!root || !count) return;
    root_ = root;
    if (const char* at = std::getenv("DANLU_KILL_AT")) kill_at_ = std::strtoull(at, nullptr, 10);
    if (const char* store = std::getenv("DANLU_KILL_SYNCED")) store_ = store;
    const int fd = ::open(count, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, sizeof(uint64_t)) != 0) return;
    void* map = ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (map == MAP_FAILED) return;
    count_ = static_cast<std::atomic<uint64_t>*>(map);
    if (records() && *count_ == 0) record_all(root_);
  }

  void record_all(const std::string& directory) const {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    record(fd);
    DIR* list = ::fdopendir(fd);
    while (const dirent* entry = ::readdir(list)) {
      const std::string name = entry->d_name, path = directory + "/" + name;
      if (name == "." || name == "..") continue;
      if (entry->d_type == DT_DIR) record_all(path);
      if (entry->d_type != DT_REG) continue;
      const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      record(file);
      ::close(file);
    }
    ::closedir(list);
  }

  int create(char kind, ino_t inode) const {
    const std::string name = store_ + "/" + kind + "-" + std::to_string(inode);
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
  static void put(int fd, const char* data, size_t size) {
    while (size > 0) {
      const ssize_t done = ::write(fd, data, size);
      if (done <= 0) std::abort();
      data += done;
      size -= static_cast<size_t>(done);
    }
  }
  void record_file(int fd, ino_t inode) const {
    // It may be open for writing only.
    const int from = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
    const int to = create('f', inode);
    char chunk[1 << 16];
    for (off_t at = 0;;) {
      const ssize_t got = ::pread(from, chunk, sizeof chunk, at);
      if (got <= 0) break;
      put(to, chunk, static_cast<size_t>(got));
      at += got;
    }
    ::close(from);
    ::close(to);
  }
  void record_names(int fd, ino_t inode) const {
    const int again = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* list = ::fdopendir(again);
    std::string text;
    while (const dirent* entry = ::readdir(list)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const char type = entry->d_type == DT_DIR ? 'd' : entry->d_type == DT_LNK ? 'l' : 'f';
      text += type + (" " + std::to_string(entry->d_ino) + " " + name) + '\0';
      if (type != 'l') continue;
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(again, entry->d_name, target, sizeof target);
      text += std::string(target, size > 0 ? static_cast<size_t>(size) : 0) + '\0';
    }
    ::closedir(list);
    const int to = create('d', inode);
    put(to, text.data(), text.size());
    ::close(to);
  }

  std::string root_, store_;
  uint64_t kill_at_ = 0;
  std::atomic<uint64_t>* count_ = nullptr;
};

/// Asks about one operation, and does it.
template <typename Watched, typename Do, typename Torn>
auto watch(Watched is_watched, Do act, Torn torn) {
  if (is_inside) return act();
  {
    const std::lock_guard<std::recursive_mutex> lock(mutex());
    const Inside inside;
    Recorder& recorder = Recorder::get();
    if (recorder.is_on() && is_watched(recorder) && recorder.is_due()) {
      torn();
      Recorder::die();
    }
  }
  return act();
}

template <typename Do>
auto watch_fd(int fd, Do act) {
  return watch([&](Recorder& r) { return r.is_watched(fd); }, act, [] {});
}
template <typename Do, typename Torn>
auto watch_fd(int fd, Do act, Torn torn) {
  return watch([&](Recorder& r) { return r.is_watched(fd); }, act, torn);
}
template <typename Do>
auto watch_path(int at, const char* path, Do act) {
  return watch([&](Recorder& r) { return r.is_watched(at, path); }, act, [] {});
}
/// A name that is taken away.
template <typename Do>
auto watch_loss(int at, const char* path, Do act) {
  return watch(
      [&](Recorder& r) {
        const bool is_watched = r.is_watched(at, path);
        if (is_watched && r.records()) Recorder::keep(at, path);
        return is_watched;
      },
      act, [] {});
}

int sync(int fd, int (*act)(int)) {
  const int result = watch_fd(fd, [&] { return act(fd); });
  if (is_inside) return result;
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  const Inside inside;
  const Recorder& recorder = Recorder::get();
  if (result == 0 && recorder.is_on() && recorder.records() && recorder.is_watched(fd))
    recorder.record(fd);
  return result;
}

bool is_for_writing(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT); }

template <typename Do>
int watch_open(int at, const char* path, int flags, Do act) {
  return is_for_writing(flags) ? watch_path(at, path, act) : act();
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

}  // namespace

#define WITH_MODE                           \
  va_list rest;                             \
  va_start(rest, flags);                    \
  const mode_t mode = mode_of(flags, rest); \
  va_end(rest)

extern "C" {

int open(const char* path, int flags, ...) {
  WITH_MODE;
  static const auto next = REAL(open);
  return watch_open(AT_FDCWD, path, flags, [&] { return next(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  WITH_MODE;
  static const auto next = REAL(open64);
  return watch_open(AT_FDCWD, path, flags, [&] { return next(path, flags, mode); });
}
int openat(int at, const char* path, int flags, ...) {
  WITH_MODE;
  static const auto next = REAL(openat);
  return watch_open(at, path, flags, [&] { return next(at, path, flags, mode); });
}
int openat64(int at, const char* path, int flags, ...) {
  WITH_MODE;
  static const auto next = REAL(openat64);
  return watch_open(at, path, flags, [&] { return next(at, path, flags, mode); });
}
FILE* fopen(const char* path, const char* how) {
  static const auto next = REAL(fopen);
  return how[0] == 'r' && !std::strchr(how, '+')
             ? next(path, how)
             : watch_path(AT_FDCWD, path, [&] { return next(path, how); });
}
FILE* fopen64(const char* path, const char* how) {
  static const auto next = REAL(fopen64);
  return how[0] == 'r' && !std::strchr(how, '+')
             ? next(path, how)
             : watch_path(AT_FDCWD, path, [&] { return next(path, how); });
}

ssize_t write(int fd, const void* data, size_t size) {
  static const auto next = REAL(write);
  return watch_fd(fd, [&] { return next(fd, data, size); }, [&] { next(fd, data, size / 2); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  static const auto next = REAL(writev);
  return watch_fd(
      fd, [&] { return next(fd, parts, count); },
      [&] { ::write(fd, parts[0].iov_base, parts[0].iov_len / 2); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  static const auto next = REAL(pwrite);
  return watch_fd(
      fd, [&] { return next(fd, data, size, at); }, [&] { next(fd, data, size / 2, at); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  static const auto next = REAL(pwrite64);
  return watch_fd(
      fd, [&] { return next(fd, data, size, at); }, [&] { next(fd, data, size / 2, at); });
}
int ftruncate(int fd, off_t size) {
  static const auto next = REAL(ftruncate);
  return watch_fd(fd, [&] { return next(fd, size); });
}
int ftruncate64(int fd, off64_t size) {
  static const auto next = REAL(ftruncate64);
  return watch_fd(fd, [&] { return next(fd, size); });
}
int posix_fallocate(int fd, off_t at, off_t size) {
  static const auto next = REAL(posix_fallocate);
  return watch_fd(fd, [&] { return next(fd, at, size); });
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
  static const auto next = REAL(posix_fallocate64);
  return watch_fd(fd, [&] { return next(fd, at, size); });
}
ssize_t sendfile(int to, int from, off_t* at, size_t size) {
  static const auto next = REAL(sendfile);
  return watch_fd(to, [&] { return next(to, from, at, size); });
}
ssize_t sendfile64(int to, int from, off64_t* at, size_t size) {
  static const auto next = REAL(sendfile64);
  return watch_fd(to, [&] { return next(to, from, at, size); });
}
ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size,
                        unsigned flags) {
  static const auto next = REAL(copy_file_range);
  return watch_fd(to, [&] { return next(from, from_at, to, to_at, size, flags); });
}
int fsync(int fd) { return sync(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync(fd, REAL(fdatasync)); }

int mkdir(const char* path, mode_t mode) {
  static const auto next = REAL(mkdir);
  return watch_path(AT_FDCWD, path, [&] { return next(path, mode); });
}
int mkdirat(int at, const char* path, mode_t mode) {
  static const auto next = REAL(mkdirat);
  return watch_path(at, path, [&] { return next(at, path, mode); });
}
int symlink(const char* target, const char* path) {
  static const auto next = REAL(symlink);
  return watch_path(AT_FDCWD, path, [&] { return next(target, path); });
}
int link(const char* from, const char* path) {
  static const auto next = REAL(link);
  return watch_path(AT_FDCWD, path, [&] { return next(from, path); });
}
int linkat(int from_at, const char* from, int at, const char* path, int flags) {
  static const auto next = REAL(linkat);
  return watch_path(at, path, [&] { return next(from_at, from, at, path, flags); });
}
int rename(const char* from, const char* to) {
  static const auto next = REAL(rename);
  return watch_loss(AT_FDCWD, to, [&] { return next(from, to); });
}
int renameat(int from_at, const char* from, int at, const char* to) {
  static const auto next = REAL(renameat);
  return watch_loss(at, to, [&] { return next(from_at, from, at, to); });
}
int renameat2(int from_at, const char* from, int at, const char* to, unsigned flags) {
  static const auto next = REAL(renameat2);
  return watch_loss(at, to, [&] { return next(from_at, from, at, to, flags); });
}
int unlink(const char* path) {
  static const auto next = REAL(unlink);
  return watch_loss(AT_FDCWD, path, [&] { return next(path); });
}
int unlinkat(int at, const char* path, int flags) {
  static const auto next = REAL(unlinkat);
  return watch_loss(at, path, [&] { return next(at, path, flags); });
}
int rmdir(const char* path) {
  static const auto next = REAL(rmdir);
  return watch_loss(AT_FDCWD, path, [&] { return next(path); });
}
int remove(const char* path) {
  static const auto next = REAL(remove);
  return watch_loss(AT_FDCWD, path, [&] { return next(path); });
}

}  // extern "C"
