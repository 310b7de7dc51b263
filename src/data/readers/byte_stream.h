// data/readers/byte_stream.h: a file's bytes in order, decompressed on the way (.gz, .zst).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace danlu::data {

/// UTF-8's byte order mark. Some editors write it; it is no part of the text.
inline constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
enum class ByteOrderMark { kSkipped, kKept };

/// Sequential bytes with bounded memory. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `size` bytes; 0 at the end. Errors: IoError (unreadable); DataError naming the file if
  /// compressed data are damaged or cut off.
  virtual size_t read(char* to, size_t size) = 0;
  /// Bytes of the file consumed so far (compressed ones), for progress.
  virtual uint64_t file_bytes_read() const = 0;

  /// Chooses by file name: *.gz, *.zst, else plain. Errors: IoError.
  static std::unique_ptr<ByteStream> open(const std::filesystem::path& path,
                                          ByteOrderMark mark = ByteOrderMark::kSkipped);
};

/// The bytes of a ByteStream one by one.
class ByteCursor {
 public:
  explicit ByteCursor(std::unique_ptr<ByteStream> stream);
  /// The next byte, not taken; -1 at the end.
  int peek() { return at_ < size_ || fill() ? static_cast<unsigned char>(buffer_[at_]) : -1; }
  /// Takes the byte that peek() showed. REQUIRES: it was not -1.
  char take() { return buffer_[at_++]; }
  /// What was read and not taken: more than one byte where the file has more.
  std::string_view ahead();
  uint64_t file_bytes_read() const { return stream_->file_bytes_read(); }

 private:
  bool fill();
  std::unique_ptr<ByteStream> stream_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
};

/// Lines of a file (unpacked) without their ending ("\n" or "\r\n"); a last line needs no ending.
class LineReader {
 public:
  /// Errors: those of ByteStream::open.
  explicit LineReader(std::filesystem::path path);
  /// False at the end. Errors: DataError at file:line for one longer than kMaxRecordBytes; those of
  /// ByteStream::read.
  bool next(std::string* line);
  /// The number, from 1, of the line that next() gave last.
  int64_t line_number() const { return line_number_; }
  uint64_t file_bytes_read() const { return stream_->file_bytes_read(); }

 private:
  bool fill();
  std::filesystem::path path_;
  std::unique_ptr<ByteStream> stream_;
  int64_t line_number_ = 0;
  std::string buffer_;
  size_t at_ = 0;
};

}  // namespace danlu::data
