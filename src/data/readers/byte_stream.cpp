#include "data/readers/byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "data/readers/record_limits.h"

namespace danlu::data {
namespace {

constexpr size_t kChunkBytes = 1 << 18;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(std::filesystem::path path) : path_(std::move(path)) {
    fd_ = open_input(path_);
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~PlainStream() override { ::close(fd_); }
  size_t read(char* to, size_t size) override {
    for (;;) {
      const ssize_t got = ::read(fd_, to, size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read");
      bytes_ += static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    }
  }
  uint64_t file_bytes_read() const override { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* doing) const {
    throw IoError(tr("{}: cannot {}: {}", path_.string(), doing, std::strerror(errno)));
  }
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(std::filesystem::path path) : file_(std::move(path)), input_(kChunkBytes) {
    // 15 + 32: largest window, gzip or zlib header found by itself.
    if (::inflateInit2(&zlib_, 15 + 32) != Z_OK) throw InternalError("zlib cannot start");
  }
  ~GzipStream() override { ::inflateEnd(&zlib_); }
  size_t read(char* to, size_t size) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(to);
    zlib_.avail_out = static_cast<uInt>(size);
    while (zlib_.avail_out == size) {
      if (zlib_.avail_in == 0 && !output_pending_) {
        zlib_.avail_in = static_cast<uInt>(file_.read(input_.data(), input_.size()));
        zlib_.next_in = reinterpret_cast<Bytef*>(input_.data());
        if (zlib_.avail_in == 0) {
          if (inside_member_) damaged("ends in the middle");
          return 0;
        }
      }
      // A gzip file may hold several members one after the other.
      if (!inside_member_) ::inflateReset(&zlib_);
      inside_member_ = true;
      const int code = ::inflate(&zlib_, Z_NO_FLUSH);
      // At the end of a member nothing is pending, even if it has just filled `to`.
      output_pending_ = zlib_.avail_out == 0 && code != Z_STREAM_END;
      if (code == Z_STREAM_END) {
        inside_member_ = false;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        damaged(zlib_.msg ? zlib_.msg : "unknown fault");
      }
    }
    return size - zlib_.avail_out;
  }
  uint64_t file_bytes_read() const override { return file_.file_bytes_read(); }

 private:
  [[noreturn]] void damaged(const char* what) const {
    throw DataError(tr("{}: damaged gzip data: {}", file_.path().string(), what));
  }
  PlainStream file_;
  std::vector<char> input_;
  z_stream zlib_{};
  bool inside_member_ = false;
  bool output_pending_ = false;  ///< the last call filled `to`: more may come without new input
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(std::filesystem::path path)
      : file_(std::move(path)), input_(kChunkBytes), zstd_(::ZSTD_createDStream()) {}
  ~ZstdStream() override { ::ZSTD_freeDStream(zstd_); }
  size_t read(char* to, size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !output_pending_) {
        in_ = {input_.data(), file_.read(input_.data(), input_.size()), 0};
        if (in_.size == 0) {
          if (inside_frame_) damaged("ends in the middle");
          return 0;
        }
      }
      const size_t code = ::ZSTD_decompressStream(zstd_, &out, &in_);
      if (::ZSTD_isError(code)) damaged(::ZSTD_getErrorName(code));
      inside_frame_ = code != 0;
      output_pending_ = out.pos == size && inside_frame_;
    }
    return out.pos;
  }
  uint64_t file_bytes_read() const override { return file_.file_bytes_read(); }

 private:
  [[noreturn]] void damaged(const char* what) const {
    throw DataError(tr("{}: damaged zstd data: {}", file_.path().string(), what));
  }
  PlainStream file_;
  std::vector<char> input_;
  ZSTD_DStream* zstd_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_frame_ = false;
  bool output_pending_ = false;
};

/// What `inner` holds after a byte order mark.
class WithoutMark : public ByteStream {
 public:
  explicit WithoutMark(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)) {}
  size_t read(char* to, size_t size) override {
    if (!std::exchange(begun_, true)) read_head();
    if (head_.empty()) return inner_->read(to, size);
    const size_t take = std::min(size, head_.size());
    std::memcpy(to, head_.data(), take);
    head_.erase(0, take);
    return take + (take < size ? inner_->read(to + take, size - take) : 0);
  }
  uint64_t file_bytes_read() const override { return inner_->file_bytes_read(); }

 private:
  void read_head() {
    head_.resize(kUtf8Mark.size());
    size_t filled = 0;
    for (size_t got = 1; got > 0 && filled < head_.size(); filled += got) {
      got = inner_->read(head_.data() + filled, head_.size() - filled);
    }
    head_.resize(filled);
    if (head_ == kUtf8Mark) head_.clear();
  }
  std::unique_ptr<ByteStream> inner_;
  std::string head_;
  bool begun_ = false;
};

std::unique_ptr<ByteStream> open_packed(const std::filesystem::path& path) {
  if (path.extension() == ".gz") return std::make_unique<GzipStream>(path);
  if (path.extension() == ".zst") return std::make_unique<ZstdStream>(path);
  return std::make_unique<PlainStream>(path);
}

}  // namespace

std::unique_ptr<ByteStream> ByteStream::open(const std::filesystem::path& path,
                                             ByteOrderMark mark) {
  auto stream = open_packed(path);
  if (mark == ByteOrderMark::kKept) return stream;
  return std::make_unique<WithoutMark>(std::move(stream));
}

ByteCursor::ByteCursor(std::unique_ptr<ByteStream> stream)
    : stream_(std::move(stream)), buffer_(kChunkBytes, '\0') {}

bool ByteCursor::fill() {
  size_ = stream_->read(buffer_.data(), buffer_.size());
  at_ = 0;
  return size_ > 0;
}

std::string_view ByteCursor::ahead() {
  peek();
  return std::string_view(buffer_).substr(at_, size_ - at_);
}

LineReader::LineReader(std::filesystem::path path)
    : path_(std::move(path)), stream_(ByteStream::open(path_)) {}

bool LineReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t old_size = buffer_.size();
  if (old_size > kMaxRecordBytes)
    refuse_long_record(fmt::format("{}:{}", path_.string(), line_number_ + 1));
  buffer_.resize(old_size + kChunkBytes);
  const size_t got = stream_->read(buffer_.data() + old_size, kChunkBytes);
  buffer_.resize(old_size + got);
  return got > 0;
}

bool LineReader::next(std::string* line) {
  size_t searched = at_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      const size_t stop = end > at_ && buffer_[end - 1] == '\r' ? end - 1 : end;
      line->assign(buffer_, at_, stop - at_);
      at_ = end + 1;
      ++line_number_;
      return true;
    }
    const size_t pending = buffer_.size() - at_;
    if (!fill()) {
      if (pending == 0) return false;
      line->assign(buffer_, at_, pending);
      at_ = buffer_.size();
      ++line_number_;
      return true;
    }
    searched = at_ + pending;
  }
}

}  // namespace danlu::data
