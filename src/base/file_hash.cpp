#include "base/file_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/rng.h"

namespace danlu {
namespace {

constexpr size_t kPieceBytes = 1 << 20;  // a multiple of 32

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path), fd_(open_input(path)) {
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// Fills `to`; less only at the end of the file.
  size_t read(std::vector<char>* to) const {
    const ssize_t got = read_full(fd_, to->data(), to->size());
    if (got < 0) fail("read");
    return static_cast<size_t>(got);
  }

 private:
  [[noreturn]] void fail(const char* doing) const {
    throw IoError(tr("{}: cannot {}: {}", path_.string(), doing, std::strerror(errno)));
  }
  const std::filesystem::path& path_;
  int fd_;
};

}  // namespace

uint64_t hash_file(const std::filesystem::path& path) {
  const InputFile file(path);
  // Four independent lanes: a content key must not cost more than reading does.
  uint64_t lanes[4] = {1, 2, 3, 4};
  uint64_t size = 0;
  std::vector<char> piece(kPieceBytes);
  for (size_t count = piece.size(); count == piece.size();) {
    count = file.read(&piece);
    std::fill(piece.begin() + static_cast<std::ptrdiff_t>(count), piece.end(), '\0');
    size += count;
    for (size_t at = 0; at < count; at += 32) {
      for (size_t lane = 0; lane < 4; ++lane) {
        uint64_t word;
        std::memcpy(&word, piece.data() + at + 8 * lane, 8);
        lanes[lane] = (lanes[lane] ^ word) * 0x9E3779B97F4A7C15ull;
        lanes[lane] ^= lanes[lane] >> 29;
      }
    }
  }
  uint64_t hash = mix64(size, 0);
  for (const uint64_t lane : lanes) hash = mix64(hash, lane);
  return hash;
}

}  // namespace danlu
