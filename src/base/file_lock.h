// base/file_lock.h: keeping other processes away from files while this one works on them.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"

namespace danlu {

/// An advisory lock (flock) on a file that names its holder. The system frees it when the process
/// ends, however it ends; the file is removed when the lock is given back, and one that a killed
/// process left behind locks nobody out. Movable.
class FileLock {
 public:
  /// Nullopt if another process holds it, or another FileLock of this one. Never waits.
  /// A file system without locks: a warning, and a lock that keeps nobody away.
  /// Errors: IoError (the directory is missing or not writable).
  static std::optional<FileLock> try_take(const fs::path& file);
  /// Waits for the holder, and says once that it does, calling what it waits for `what`.
  /// Errors: as try_take; as throw_interrupted if a signal comes meanwhile.
  static FileLock wait_for(const fs::path& file, const std::string& what);
  /// Who holds the lock: "process 1234", with "on HOST" if it runs elsewhere; "another process" if
  /// the file does not say.
  static std::string holder(const fs::path& file);

  /// False once somebody has removed or replaced the file, so that another process may hold one of
  /// that name.
  bool is_held() const;

  FileLock(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(int fd, fs::path file) : fd_(fd), file_(std::move(file)) {}
  int fd_ = -1;
  fs::path file_;
};

}  // namespace danlu
