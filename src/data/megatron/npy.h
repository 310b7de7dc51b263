// data/megatron/npy.h: numpy's .npy files (version 1.0), as Megatron caches its indices.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include "base/file.h"

namespace danlu::data {

/// Columns 0 means a one-dimensional array.
struct NpyShape {
  int64_t rows = 0, columns = 0;
  int64_t size() const { return columns == 0 ? rows : rows * columns; }
};

/// Everything before the values, as numpy.save writes it. kind 'i' or 'u', width in bytes.
std::string npy_header(char kind, size_t width, NpyShape shape);

/// npy_header for elements of type T.
template <typename T>
std::string npy_header_of(NpyShape shape) {
  static_assert(std::is_integral_v<T>);
  return npy_header(std::is_signed_v<T> ? 'i' : 'u', sizeof(T), shape);
}

/// Writes atomically the bytes that numpy.save writes. Errors: IoError.
/// REQUIRES: values.size() == shape.size().
template <typename T>
void write_npy(const std::filesystem::path& path, std::span<const T> values, NpyShape shape) {
  AtomicFile file(path);
  file.write(npy_header_of<T>(shape));
  file.write(values.data(), values.size_bytes());
  file.commit();
}

/// A mapped .npy file of little-endian integers in C order. Thread-safe to read.
class NpyFile {
 public:
  /// Errors: IoError; DataError naming the file if it is no such array or is too short.
  explicit NpyFile(const std::filesystem::path& path);
  NpyShape shape() const { return shape_; }
  /// "<i4", "<u4", "<i8", …
  const std::string& descr() const { return descr_; }
  /// Element in row-major order, widened. REQUIRES: 0 <= index < shape().size().
  int64_t at(int64_t index) const;

 private:
  MappedFile file_;
  NpyShape shape_;
  std::string descr_;
  const std::byte* data_ = nullptr;
};

}  // namespace danlu::data
