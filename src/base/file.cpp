#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/temporary.h"

namespace danlu {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(const fs::path& path, std::string_view doing) {
  const int code = errno;
  throw IoError(
      tr("{}: cannot {}: {}", path.string(), doing, std::strerror(code)),
      hint_of_full(
          code,
          tr("free disk space or choose another directory; files written before are intact")));
}

fs::path without_trailing_slash(fs::path path) {
  while (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  return path;
}

}  // namespace

std::string hint_of_full(int code, const std::string& no_space) {
  if (code == ENOSPC || code == EDQUOT) return no_space;
  rlimit limit{};
  if (code != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "";
  return tr("no file may be larger than {} here: raise the limit (ulimit -f)",
            format_bytes(limit.rlim_cur));
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int fd = open_input(path);
  struct stat info{};
  ::fstat(fd, &info);
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw IoError(tr("{}: not a regular file", path.string()));
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) {
      ::close(fd);
      fail(path, "map");
    }
    data_ = static_cast<const std::byte*>(address);
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::forget() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

std::string read_file(const fs::path& path) {
  const int fd = open_input(path);
  std::string content;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t got = read_full(fd, chunk, sizeof chunk);
    if (got == 0) break;
    if (got < 0) {
      const int code = errno;
      ::close(fd);
      errno = code;
      fail(path, "read");
    }
    content.append(chunk, static_cast<size_t>(got));
  }
  ::close(fd);
  return content;
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

std::string unique_suffix() {
  thread_local std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", ::getpid(), random(), random());
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  Temporary temporary(path_, Temporary::Kind::kFile);
  if (temporary.fd() < 0) fail(path_, "create");
  temporary_ = temporary.path();
  fd_ = temporary.release();
  buffer_.reserve(kBufferBytes);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::flush_buffer() {
  if (!write_all(fd_, buffer_.data(), buffer_.size())) fail(path_, "write");
  buffer_.clear();
}

void AtomicFile::write(const void* data, size_t size_bytes) {
  const char* from = static_cast<const char*>(data);
  written_ += size_bytes;
  while (size_bytes > 0) {
    if (buffer_.empty() && size_bytes >= kBufferBytes) {
      if (!write_all(fd_, from, size_bytes)) fail(path_, "write");
      return;
    }
    const size_t take = std::min(size_bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + take);
    from += take;
    size_bytes -= take;
    if (buffer_.size() == kBufferBytes) flush_buffer();
  }
}

void AtomicFile::finish() {
  flush_buffer();
  if (!sync_descriptor(fd_)) fail(path_, "sync");
  // Where there is no fsync, closing is what says that data are lost. The copy keeps the lock.
  const int lock = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (lock < 0 || ::close(std::exchange(fd_, lock)) != 0) fail(path_, "write");
}

void AtomicFile::commit() {
  finish();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "write");
  temporary_.clear();
  ::close(std::exchange(fd_, -1));
  sync_path(path_.parent_path());
}

namespace {

/// Gives `fresh` the name `target`, which may exist; what had it is under the name of `fresh` then,
/// or gone.
void replace_directory(const fs::path& fresh, const fs::path& target) {
  if (!fs::exists(fs::symlink_status(target))) {
    fs::rename(fresh, target);
    return;
  }
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  // Two renames where a file system cannot exchange: a crash between them leaves the old content
  // where the next command finds it, and puts it back or, where no lock says that we are dead,
  // names it, rather than nothing.
  Temporary aside(target, Temporary::Kind::kAside);
  if (aside.fd() < 0) fail(target, "write");
  const fs::path old = aside.path() / target.filename();
  fs::rename(target, old);
  std::error_code failed, is_stuck;
  fs::rename(fresh, target, failed);
  if (!failed) return;
  fs::rename(old, target, is_stuck);
  if (!is_stuck) throw fs::filesystem_error("rename", fresh, target, failed);
  ::close(aside.release());  // it holds the only copy
  throw IoError(tr("{}: cannot write: {}; what was there is in {}, and cannot be put back: {}",
                   target.string(), failed.message(), old.string(), is_stuck.message()),
                tr("move it back"));
}

}  // namespace

void write_directory_atomic(const fs::path& path,
                            const std::function<void(const fs::path&)>& fill) {
  const fs::path target = without_trailing_slash(path);
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const MadeDirectory made(parent);
  try {
    const Temporary temporary(target, Temporary::Kind::kDirectory);
    if (temporary.fd() < 0) fail(target, "write");
    fill(temporary.path());
    sync_path(temporary.path());
    replace_directory(temporary.path(), target);
    sync_path(parent);
  } catch (const fs::filesystem_error& e) {
    throw IoError(tr("{}: cannot write: {}", target.string(), e.code().message()));
  }
}

void publish_directory(const fs::path& from, const fs::path& target) {
  try {
    sync_path(from);
    replace_directory(from, without_trailing_slash(target));
    sync_path(fs::absolute(without_trailing_slash(target)).parent_path());
    if (fs::exists(fs::symlink_status(from))) remove_directory_atomic(from);
  } catch (const fs::filesystem_error& e) {
    throw IoError(tr("{}: cannot write: {}", target.string(), e.code().message()));
  }
}

void remove_directory_atomic(const fs::path& path) {
  const fs::path from = without_trailing_slash(path);
  const Temporary grave(from, Temporary::Kind::kDirectory);
  if (grave.fd() < 0 && (errno == ENOSPC || errno == EDQUOT)) {
    // No room for a new directory: what makes room must not fail for that.
    std::error_code error;
    fs::remove_all(from, error);
    if (!error) return;
  }
  if (grave.fd() < 0 || ::rename(from.c_str(), (grave.path() / from.filename()).c_str()) != 0)
    fail(from, "remove");
  sync_path(from.parent_path());
}

void sync_path(const fs::path& path) {
  const int fd = ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const bool is_synced = sync_descriptor(fd);
  const int code = errno;
  ::close(fd);
  errno = code;
  if (!is_synced) fail(path, "sync");
}

uint64_t free_space_bytes(const fs::path& path) {
  fs::path probe = fs::absolute(path);
  while (!fs::exists(probe) && probe.has_relative_path()) probe = probe.parent_path();
  struct statvfs info{};
  if (::statvfs(probe.c_str(), &info) != 0) fail(probe, "ask for free space");
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

void require_free_space(const fs::path& path, uint64_t needed_bytes, std::string_view what) {
  const uint64_t free_bytes = free_space_bytes(path);
  if (free_bytes >= needed_bytes) return;
  throw IoError(tr("{}: {} needs {}, {} are free", path.string(), what, format_bytes(needed_bytes),
                   format_bytes(free_bytes)),
                tr("free disk space or choose another directory"));
}

namespace {

/// `path` and those above it that are not there, innermost first.
std::vector<fs::path> missing_directories(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code unknown;
  for (fs::path at = fs::absolute(path).lexically_normal();
       at.has_relative_path() && !fs::exists(at, unknown); at = at.parent_path()) {
    // "run/" has an empty last part that names nothing of its own.
    if (at.has_filename()) missing.push_back(at);
  }
  return missing;
}

}  // namespace

void require_writable_directory(const fs::path& path) {
  const std::vector<fs::path> made = missing_directories(path);
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) {
    throw IoError(tr("{}: cannot create directory: {}", path.string(),
                     error ? error.message() : "a file is in the way"));
  }
  // Whatever is synced in a directory is lost with the directory's own name.
  for (const fs::path& directory : made) sync_path(directory.parent_path());
  const int fd = open_nameless(path);
  if (fd < 0) fail(path, "write into");
  ::close(fd);
  sweep_temporaries_once(path);
}

MadeDirectory::MadeDirectory(const fs::path& path) : made_(missing_directories(path)) {
  try {
    require_writable_directory(path);
  } catch (...) {
    for (const fs::path& made : made_) ::rmdir(made.c_str());
    throw;
  }
}

MadeDirectory::~MadeDirectory() {
  // rmdir leaves what somebody has put into a directory.
  for (const fs::path& made : made_) {
    if (::rmdir(made.c_str()) != 0) break;
  }
}

uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  uint64_t hash = seed;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

}  // namespace danlu
