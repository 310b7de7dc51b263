#include "board/line_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace danlu::board {
namespace {

constexpr size_t kRemembered = 4096;

FileStamp stamp_from(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .changed_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

/// Fewer at the end of the file, or where it cannot be read.
std::string read_at(int fd, uint64_t offset, size_t most_bytes) {
  std::string text(most_bytes, '\0');
  size_t done = 0;
  while (done < most_bytes) {
    const ssize_t got =
        ::pread(fd, text.data() + done, most_bytes - done, static_cast<off_t>(offset + done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return stamp_from(status);
}

int open_regular(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status{};
  if (fd >= 0 && (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(fd);
    return -1;
  }
  return fd;
}

std::optional<std::string> read_part(const std::filesystem::path& path, uint64_t offset,
                                     size_t most_bytes) {
  const OpenFile file(open_regular(path));
  if (file.fd() < 0) return std::nullopt;
  return read_at(file.fd(), offset, most_bytes);
}

bool LineFollower::is_the_same(int fd, const FileStamp& now) const {
  if (now.device != device_ || now.inode != inode_ || now.size_bytes < offset_) return false;
  return read_at(fd, offset_ - before_.size(), before_.size()) == before_;
}

void LineFollower::take_lines(const std::string& text, News& news) {
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    if (!in_long_line_) news.lines.push_back(text.substr(at, end - at));
    in_long_line_ = false;
  }
  if (at == 0 && text.size() >= kLongestLine) {
    in_long_line_ = true;
    at = text.size();
  }
  offset_ += at;
  before_ += text.substr(0, at);
  if (before_.size() > kRemembered) before_.erase(0, before_.size() - kRemembered);
}

LineFollower::News LineFollower::read_on(size_t most_bytes) {
  News news;
  const auto there = stamp_of(path_);
  if (there && there == seen_) return news;
  const OpenFile file(open_regular(path_));
  struct stat status{};
  if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0) {
    news.begins_anew = device_ != 0 || inode_ != 0;
    *this = LineFollower(path_);
    return news;
  }
  const FileStamp now = stamp_from(status);
  if (!is_the_same(file.fd(), now)) {
    news.begins_anew = inode_ != 0;
    *this = LineFollower(path_);
    device_ = now.device;
    inode_ = now.inode;
  }
  // A line that fills what may be read must be seen as a whole to be passed over.
  most_bytes = std::max(most_bytes, kLongestLine);
  const uint64_t left = now.size_bytes - offset_;
  const std::string text = read_at(file.fd(), offset_, std::min<uint64_t>(most_bytes, left));
  take_lines(text, news);
  news.has_more = text.size() == most_bytes;
  if (!news.has_more) seen_ = now;
  return news;
}

}  // namespace danlu::board
