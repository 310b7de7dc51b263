#include "checkpoint/checksum.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "weights/compare/tensor_digest.h"

namespace danlu::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 64 << 20;
constexpr size_t kBufferBytes = 1 << 20;

class ReadableFile {
 public:
  explicit ReadableFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail();
  }
  ~ReadableFile() { ::close(fd_); }
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  /// The digest of the bytes [begin, end), or of as many as there are.
  uint64_t digest(int64_t begin, int64_t end) const {
    weights::DigestStream digest;
    std::vector<std::byte> buffer(kBufferBytes);
    while (begin < end) {
      const auto wanted = std::min(buffer.size(), static_cast<size_t>(end - begin));
      const ssize_t got = ::pread(fd_, buffer.data(), wanted, begin);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) break;
      digest.add(std::span(buffer).first(static_cast<size_t>(got)));
      begin += got;
    }
    return digest.digest();
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError(tr("{}: cannot read: {}", path_.string(), std::strerror(errno)));
  }
  const std::filesystem::path& path_;
  int fd_;
};

}  // namespace

std::string checksum_of(const std::filesystem::path& path) {
  const ReadableFile file(path);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (size <= kPieceBytes) return weights::digest_text(file.digest(0, size));
  std::vector<uint64_t> pieces(static_cast<size_t>((size + kPieceBytes - 1) / kPieceBytes));
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      pieces[static_cast<size_t>(i)] =
          file.digest(i * kPieceBytes, std::min(size, (i + 1) * kPieceBytes));
  });
  weights::DigestStream total;
  total.add(std::as_bytes(std::span(pieces)));
  return weights::digest_text(total.digest());
}

}  // namespace danlu::checkpoint
