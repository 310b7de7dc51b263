// base/file.h: files: mapped reading, and writing that never leaves half a file behind.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace danlu {

namespace fs = std::filesystem;

/// A read-only memory map of a whole file. Movable; unmapped on destruction. Thread-safe to read.
class MappedFile {
 public:
  MappedFile() = default;
  /// Errors: IoError naming the path (missing, a directory, no permission).
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  size_t size() const { return size_; }
  const fs::path& path() const { return path_; }
  /// Lets the system take back the memory of pages read so far; they are read again when needed.
  void forget() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  fs::path path_;
};

/// The whole file as a string. Errors: IoError.
std::string read_file(const fs::path& path);

/// Writes to a temporary sibling, syncs, renames: readers see the old content or the new, never a
/// part. Errors: IoError (disk full, not writable); the old file is then intact.
void write_file_atomic(const fs::path& path, std::string_view content);

/// A Temporary being written, published under its name by commit(); removed if destroyed before.
class AtomicFile {
 public:
  explicit AtomicFile(fs::path path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();
  /// Appends. Errors: IoError.
  void write(const void* data, size_t size_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  uint64_t bytes_written() const { return written_; }
  /// fsync: from here on only the name is missing. For several files that belong together: finish
  /// all, then commit all. Errors: IoError (disk full).
  void finish();
  /// finish, if that was not done, and rename. Errors: IoError.
  void commit();

 private:
  void flush_buffer();
  fs::path path_, temporary_;  ///< temporary_ is empty when nothing is left to remove
  int fd_ = -1;                ///< its lock, until it has its name
  uint64_t written_ = 0;
  std::vector<char> buffer_;
};

/// "1234-5f0c…": process id and 64 random bits, other ones in each call. Names that end in it meet
/// no other process's, not even where containers that share a volume all have process id 1.
std::string unique_suffix();

/// Fills a Temporary directory by `fill`, then gives it the name `target`; an existing
/// `target` is replaced only after `fill` succeeded, in one step where the file system can (it is
/// never missing then). On an error nothing of the attempt remains and `target` is as before.
void write_directory_atomic(const fs::path& target,
                            const std::function<void(const fs::path&)>& fill);

/// Gives the finished directory `from` the name `target`, on the same file system; an existing
/// `target` is replaced in one step where the file system can. Errors: IoError.
void publish_directory(const fs::path& from, const fs::path& target);

/// Removes a directory with all it holds: killed at any moment it leaves it whole or without its
/// name. Errors: IoError.
void remove_directory_atomic(const fs::path& path);

/// Makes what is at `path` certain: a file's content, or the names in a directory. Errors: IoError;
/// none if it cannot be opened.
void sync_path(const fs::path& path);

/// What helps where writing failed with this errno: `no_space` on a full disk; of a file above the
/// limit of its size, that limit. Empty for other errors.
std::string hint_of_full(int code, const std::string& no_space);

/// Bytes free for this user on the file system that holds (or would hold) `path`.
uint64_t free_space_bytes(const fs::path& path);

/// Errors: IoError saying both numbers if fewer than `needed_bytes` are free at `path`.
void require_free_space(const fs::path& path, uint64_t needed_bytes, std::string_view what);

/// Creates `path` (and parents) if missing, checks that files can be made in it, and takes away
/// what dead processes left there (base/temporary.h). Errors: IoError.
void require_writable_directory(const fs::path& path);

/// Makes a directory with its missing parents. When it goes, it takes away again those that it made
/// and that are still empty: a command that fails before it writes leaves no trace.
class MadeDirectory {
 public:
  /// Errors: as require_writable_directory.
  explicit MadeDirectory(const fs::path& path);
  ~MadeDirectory();
  MadeDirectory(const MadeDirectory&) = delete;
  MadeDirectory& operator=(const MadeDirectory&) = delete;

 private:
  std::vector<fs::path> made_;  ///< innermost first
};

/// 64-bit FNV-1a of `bytes`, continuing from `seed`: content keys for caches, not security.
uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0xcbf29ce484222325ull);

}  // namespace danlu
