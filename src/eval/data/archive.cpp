#include "eval/data/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/lfs_pointer.h"
#include "base/lower_case.h"
#include "data/readers/data_files.h"

namespace danlu::eval {
namespace {
namespace {

constexpr size_t kReadBlockBytes = size_t{1} << 18;
constexpr uint64_t kTarBlockBytes = 512;
constexpr std::array kEndings = {".zip", ".tar",     ".tar.gz", ".tgz",    ".tar.xz",
                                 ".txz", ".tar.bz2", ".tbz2",   ".tar.zst"};

struct CloseArchive {
  void operator()(::archive* reader) const { ::archive_read_free(reader); }
};
using Reader = std::unique_ptr<::archive, CloseArchive>;

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& why) {
  throw DataError(tr("{}: the archive is damaged or cut off: {}", path.string(), why),
                  tr("fetch it again and compare its size with the source's"));
}

[[noreturn]] void fail_damaged(const fs::path& path, ::archive* reader) {
  const char* why = ::archive_error_string(reader);
  fail_damaged(path, why ? why : "");
}

Reader open_reader(const fs::path& path) {
  // So that a missing or forbidden file is no damaged one.
  ::close(open_input(path));
  refuse_lfs_pointer_as_data(path);
  Reader reader(::archive_read_new());
  if (!reader) throw std::bad_alloc();
  // "all" would bring filters that start programs, and the reader of zips without their table of
  // contents, which takes one that was cut between two members for whole.
  ::archive_read_support_filter_gzip(reader.get());
  ::archive_read_support_filter_bzip2(reader.get());
  ::archive_read_support_filter_xz(reader.get());
  ::archive_read_support_filter_zstd(reader.get());
  ::archive_read_support_format_tar(reader.get());
  ::archive_read_support_format_zip_seekable(reader.get());
  if (::archive_read_open_filename(reader.get(), path.c_str(), kReadBlockBytes) < ARCHIVE_WARN)
    fail_damaged(path, reader.get());
  return reader;
}

/// Names of a member in which nothing can hide; empty: it is none of ours.
std::string safe_name(const fs::path& archive, ::archive_entry* entry) {
  const char* raw = ::archive_entry_pathname_utf8(entry);
  if (!raw) raw = ::archive_entry_pathname(entry);
  if (!raw) return {};
  fs::path safe;
  for (const fs::path& part : fs::path(raw)) {
    if (part == "..") {
      throw DataError(tr("{}: the member '{}' would lie outside of where it is unpacked",
                         archive.string(), raw));
    }
    if (part == "/" || part == "." || part.empty()) continue;
    // "__MACOSX/._x.csv" stands beside x.csv and holds no rows.
    if (part == "__MACOSX" || part.native().starts_with('.')) return {};
    safe /= part;
  }
  return is_benchmark_file(safe) ? safe.string() : std::string();
}

/// A .tar without a packing says nothing of its end but two empty blocks: one that was cut between
/// two members looks whole to every reader.
void require_end_of_tar(const fs::path& path, ::archive* reader) {
  if (::archive_filter_code(reader, 0) != ARCHIVE_FILTER_NONE) return;
  if ((::archive_format(reader) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_TAR) return;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 2 * kTarBlockBytes> end{};
  file.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  file.read(end.data(), end.size());
  const bool is_empty = std::all_of(end.begin(), end.end(), [](char c) { return c == 0; });
  if (!file || !is_empty) fail_damaged(path, tr("its end is missing"));
}

/// Counts what comes out of one archive.
class Bounds {
 public:
  Bounds(const fs::path& path, const ArchiveLimits& limits)
      : path_(path), num_files_(limits.num_files) {
    std::error_code unknown;
    const uint64_t size = fs::file_size(path, unknown);
    const uint64_t scaled = unknown || size > limits.most_bytes / limits.times_archive
                                ? limits.most_bytes
                                : size * limits.times_archive;
    bytes_ = std::min(std::max(scaled, limits.always_bytes), limits.most_bytes);
  }
  void add_file() {
    if (++files_ > num_files_)
      throw DataError(tr("{}: more than {} files in one archive", path_.string(), num_files_));
  }
  void add_bytes(uint64_t count) {
    read_ += count;
    if (read_ <= bytes_) return;
    throw DataError(tr("{}: unpacks to more than {} bytes, far more than such an archive holds",
                       path_.string(), bytes_),
                    tr("if it is what you want, unpack it yourself and name the directory"));
  }

 private:
  fs::path path_;
  int64_t num_files_, files_ = 0;
  uint64_t bytes_ = 0, read_ = 0;
};

/// An output file that is closed on every way out.
class Member {
 public:
  Member(const fs::path& archive, const fs::path& path) : path_(path) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (!error)
      fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd_ >= 0) return;
    const int code = error ? error.value() : errno;
    // Two members of which one is a directory of the other's name.
    if (code == ENOTDIR || code == EISDIR || code == EEXIST || code == ENAMETOOLONG)
      fail_damaged(archive, tr("two members cannot lie beside each other, or a name is too long"));
    fail(code);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() {
    if (fd_ >= 0) ::close(fd_);
  }
  void write_at(int64_t offset, const void* bytes, size_t count) {
    // Sparse members name only what is no hole.
    if (::lseek(fd_, offset, SEEK_SET) < 0 || !write_all(fd_, bytes, count)) fail(errno);
  }
  void set_size(int64_t size) {
    if (::ftruncate(fd_, size) != 0) fail(errno);
  }

 private:
  [[noreturn]] void fail(int code) const {
    throw IoError(tr("{}: cannot write: {}", path_.string(), std::strerror(code)),
                  tr("TMPDIR names another place for what is unpacked"));
  }
  fs::path path_;
  int fd_ = -1;
};

void copy_member(const fs::path& path, ::archive* reader, const fs::path& to, Bounds* bounds) {
  Member member(path, to);
  int64_t size = 0;
  for (;;) {
    const void* bytes = nullptr;
    size_t count = 0;
    la_int64_t offset = 0;
    const int code = ::archive_read_data_block(reader, &bytes, &count, &offset);
    if (code == ARCHIVE_EOF) break;
    // A checksum that does not agree is no more than a warning to libarchive.
    if (code != ARCHIVE_OK) fail_damaged(path, reader);
    if (offset < size) fail_damaged(path, tr("a member's parts overlap"));
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("stopped while unpacking {}", path.string()));
    bounds->add_bytes(static_cast<uint64_t>(offset - size) + count);
    if (count > 0) member.write_at(offset, bytes, count);
    size = offset + static_cast<int64_t>(count);
  }
  member.set_size(size);
}

/// Copies the data files below `to`; without it, only their safe names are gathered.
std::vector<std::string> take_files(const fs::path& path, const ArchiveLimits& limits,
                                    const fs::path* to) {
  std::vector<std::string> names;
  Bounds bounds(path, limits);
  const Reader reader = open_reader(path);
  for (;;) {
    ::archive_entry* entry = nullptr;
    const int code = ::archive_read_next_header(reader.get(), &entry);
    if (code == ARCHIVE_EOF) break;
    if (code < ARCHIVE_WARN) fail_damaged(path, reader.get());
    bounds.add_file();
    const bool is_link =
        ::archive_entry_hardlink(entry) != nullptr || ::archive_entry_symlink(entry) != nullptr;
    const std::string name = safe_name(path, entry);
    const bool is_wanted = !is_link && ::archive_entry_filetype(entry) == AE_IFREG && !name.empty();
    // What is passed by is unpacked too, if to nowhere, and takes its time.
    if (!is_wanted || !to) bounds.add_bytes(std::max<la_int64_t>(0, ::archive_entry_size(entry)));
    if (!is_wanted) continue;
    if (::archive_entry_is_encrypted(entry)) {
      throw DataError(tr("{}: '{}' is encrypted", path.string(), name),
                      tr("unpack it yourself and name the directory"));
    }
    if (to) copy_member(path, reader.get(), *to / name, &bounds);
    names.push_back(name);
  }
  require_end_of_tar(path, reader.get());
  return names;
}

}  // namespace
}  // namespace

bool is_archive(const fs::path& path) {
  const std::string name = lower_case(path.filename().string());
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

bool is_benchmark_file(const fs::path& path) {
  return data::file_type_of(path).has_value() || path.extension() == ".tiktoken";
}

std::vector<std::string> archive_names(const fs::path& archive, const ArchiveLimits& limits) {
  return take_files(archive, limits, nullptr);
}

void unpack_archive(const fs::path& archive, const fs::path& directory,
                    const ArchiveLimits& limits) {
  take_files(archive, limits, &directory);
}

}  // namespace danlu::eval
