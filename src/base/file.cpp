#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
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

namespace danlu {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(const fs::path& path, std::string_view doing) {
  const int code = errno;
  Hint hint;
  if (code == ENOSPC || code == EDQUOT) {
    hint = {"free disk space or choose another directory; files written before are intact",
            "请清理磁盘空间或更换目录；之前写入的文件完好无损"};
  }
  throw IoError(fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(code)), hint);
}

/// Hidden, beside `path`, and nobody else's.
fs::path temporary_sibling(const fs::path& path) {
  // Names end at 255 bytes on every common file system; the rest is for suffixes.
  constexpr size_t kMaxStemBytes = 200;
  return path.parent_path() / fmt::format(".{}.tmp-{}",
                                          path.filename().string().substr(0, kMaxStemBytes),
                                          unique_suffix());
}

fs::path without_trailing_slash(fs::path path) {
  while (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  return path;
}

void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int fd = open_input(path);
  struct stat info{};
  ::fstat(fd, &info);
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw IoError(fmt::format("{}: not a regular file", path.string()));
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

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)), temporary_(temporary_sibling(path_)) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) fail(path_, "create");
  buffer_.reserve(kBufferBytes);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::flush_buffer() {
  if (!write_all(fd_, buffer_.data(), buffer_.size())) fail(path_, "write");
  buffer_.clear();
}

void AtomicFile::write(const void* data, size_t size_bytes) {
  const char* from = static_cast<const char*>(data);
  written_ += size_bytes;
  while (size_bytes > 0) {
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
  if (::close(std::exchange(fd_, -1)) != 0) fail(path_, "write");
}

void AtomicFile::commit() {
  if (fd_ >= 0) finish();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "write");
  temporary_.clear();
  sync_directory(path_.parent_path());
}

namespace {

/// Gives `fresh` the name `target`, which may exist, and removes what had it.
void replace_directory(const fs::path& fresh, const fs::path& target) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target))) {
    fs::rename(fresh, target);
    return;
  }
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(fresh, ignored);
    return;
  }
  // Two renames where a file system cannot exchange: a crash between them leaves the old content
  // under the .old name rather than nothing.
  const fs::path old = fresh.string() + ".old";
  fs::rename(target, old);
  std::error_code failed;
  fs::rename(fresh, target, failed);
  if (failed) {
    fs::rename(old, target);
    throw fs::filesystem_error("rename", fresh, target, failed);
  }
  fs::remove_all(old, ignored);
}

}  // namespace

void write_directory_atomic(const fs::path& path,
                            const std::function<void(const fs::path&)>& fill) {
  const fs::path target = without_trailing_slash(path);
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const MadeDirectory made(parent);
  const fs::path temporary = temporary_sibling(target);
  std::error_code ignored;
  try {
    fs::create_directory(temporary);
    fill(temporary);
    sync_directory(temporary);
    replace_directory(temporary, target);
    sync_directory(parent);
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(temporary, ignored);
    throw IoError(fmt::format("{}: cannot write: {}", target.string(), e.code().message()));
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void publish_directory(const fs::path& from, const fs::path& target) {
  try {
    sync_directory(from);
    replace_directory(from, without_trailing_slash(target));
    sync_directory(fs::absolute(without_trailing_slash(target)).parent_path());
  } catch (const fs::filesystem_error& e) {
    throw IoError(fmt::format("{}: cannot write: {}", target.string(), e.code().message()));
  }
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
  throw IoError(fmt::format("{}: {} needs {}, {} are free", path.string(), what,
                            format_bytes(needed_bytes), format_bytes(free_bytes)),
                {"free disk space or choose another directory", "请清理磁盘空间或更换目录"});
}

void require_writable_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) {
    throw IoError(fmt::format("{}: cannot create directory: {}", path.string(),
                              error ? error.message() : "a file is in the way"));
  }
  const fs::path probe = path / (".danlu-write-test-" + unique_suffix());
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) fail(path, "write into");
  ::close(fd);
  ::unlink(probe.c_str());
}

MadeDirectory::MadeDirectory(const fs::path& path) {
  std::error_code unknown;
  for (fs::path at = fs::absolute(path).lexically_normal();
       at.has_relative_path() && !fs::exists(at, unknown); at = at.parent_path()) {
    // "run/" has an empty last part that names nothing of its own.
    if (at.has_filename()) made_.push_back(at);
  }
  try {
    require_writable_directory(path);
  } catch (...) {
    for (const fs::path& made : made_) fs::remove(made, unknown);
    throw;
  }
}

MadeDirectory::~MadeDirectory() {
  std::error_code not_empty;
  for (const fs::path& made : made_) {
    if (!fs::remove(made, not_empty)) break;
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
