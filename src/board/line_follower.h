// board/line_follower.h: the lines of a file that another process writes, as they come.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danlu::board {

/// What tells whether a file is the one that was read, and whether it has changed.
struct FileStamp {
  uint64_t device = 0, inode = 0, size_bytes = 0;
  int64_t changed_ns = 0;  ///< since 1970
  bool operator==(const FileStamp&) const = default;
};

/// The stamp of a regular file. Anything else, links included, gives nothing: who makes a run's
/// directory must not be able to show files from elsewhere.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

/// Opens a regular file for reading, links not followed, without ever waiting; -1 if that cannot
/// be. The caller closes it.
int open_regular(const std::filesystem::path& path);

/// Up to `most_bytes` from `offset`; fewer at the end. Nothing where it cannot be read.
std::optional<std::string> read_part(const std::filesystem::path& path, uint64_t offset,
                                     size_t most_bytes);

/// Reads a file that grows by whole lines, which may be replaced or cut at any time.
class LineFollower {
 public:
  explicit LineFollower(std::filesystem::path path) : path_(std::move(path)) {}

  struct News {
    bool begins_anew = false;        ///< what came before is of a file that is no longer there
    std::vector<std::string> lines;  ///< without '\n'; a last line without one waits for it
    bool has_more = false;           ///< `most_bytes` were read and there are more
  };
  /// Reads on, up to `most_bytes`. A line above kLongestLine is passed over.
  News read_on(size_t most_bytes);

  static constexpr size_t kLongestLine = size_t{4} << 20;

 private:
  bool is_the_same(int fd, const FileStamp& now) const;
  void take_lines(const std::string& text, News& news);

  std::filesystem::path path_;
  std::optional<FileStamp> seen_;  ///< when it was read to its end
  uint64_t device_ = 0, inode_ = 0;
  uint64_t offset_ = 0;  ///< after the last '\n' that was read
  std::string before_;   ///< what stands before offset_, to tell another file of that name
  bool in_long_line_ = false;
};

}  // namespace danlu::board
