// base/gguf_header.h: the header of GGUF files, read strictly. The rules are in
// docs/formats/gguf.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/gguf_format.h"

namespace danlu::gguf {

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major: the reverse of the file's order
  uint32_t type = 0;           ///< type_traits knows it
  uint64_t offset = 0;         ///< from the beginning of the file
  uint64_t size_bytes = 0;
};

struct Header {
  uint32_t version = 0;
  uint64_t alignment = kDefaultAlignment;
  Metadata metadata;
  std::vector<TensorEntry> tensors;  ///< by position in the file's list
  uint64_t data_offset = 0;          ///< where tensor data begin
};

/// Reads the header of a whole file, version 2 or 3, little-endian. What is allocated is bounded by
/// the bytes that are there, not by numbers found in them. Errors: ModelError "<origin>: …" for
/// every violated rule, naming the key or tensor.
Header parse_header(std::span<const std::byte> file, const std::string& origin);

}  // namespace danlu::gguf
