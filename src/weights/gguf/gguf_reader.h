// weights/gguf/gguf_reader.h: GGUF files, read strictly. The rules are in docs/formats/gguf.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/gguf/gguf_format.h"
#include "weights/tensor_source.h"

namespace danlu::weights::gguf {

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

/// A GGUF file as a source of tensors. Q8_0, Q4_0, Q4_K and Q6_K tensors are F32 to the reader,
/// decoded as they are read; other block types are listed (as F32, what they would decode to) but
/// reading them is a ModelError. metadata(): the file's keys, long values cut short, and under
/// "tensor types" how many tensors are stored how. Errors: as parse_header; IoError.
std::shared_ptr<const TensorSource> open(const std::filesystem::path& file);

/// The tensors of these block types as their bytes: U8 [..., bytes of a row]. Errors: as open.
std::shared_ptr<const TensorSource> open_blocks(const std::filesystem::path& file);

}  // namespace danlu::weights::gguf
