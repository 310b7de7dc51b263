// tests/weights/bytes.h: small helpers to make and compare raw tensor bytes.
#pragma once
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "weights/tensor_source.h"

namespace danlu::test {

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string read_tensor(const weights::TensorSource& source, const std::string& name) {
  std::string bytes(source.find(name)->size_bytes(), '\0');
  source.read(name, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  return bytes;
}

inline std::string read_tensor_range(const weights::TensorSource& source, const std::string& name,
                                     int64_t begin, int64_t end) {
  std::string bytes(static_cast<size_t>(end - begin) * dtype_size_bytes(source.find(name)->dtype),
                    '\0');
  source.read_range(name, begin, end, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  return bytes;
}

inline std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

/// A safetensors file with this JSON text as header, unpadded.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

}  // namespace danlu::test
