// weights/hf/safetensors_header.h: the JSON header of a safetensors file, read strictly and written
// as the reference writer does. The rules are in docs/formats/safetensors.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

struct SafetensorsEntry {
  TensorInfo info;              ///< of F8_E4M3: what it is read as, F32
  bool is_fp8 = false;          ///< F8_E4M3 in the file: a byte for each element
  uint64_t begin = 0, end = 0;  ///< byte offsets relative to the data section
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by position in the file
  Json metadata = Json::object();         ///< `__metadata__`: string -> string
  uint64_t data_offset = 0;               ///< where the data section begins in the file
};

/// Largest header the format allows, in bytes.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Reads the header of a whole file. Nothing is allocated in proportion to numbers found in the
/// file. Errors: ModelError "<origin>: …" for every violated rule, naming the tensor.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& origin);

/// The first bytes of a file that holds `tensors` in this order: length, JSON, padding to 8 bytes.
/// `metadata` is string -> string.
std::string build_safetensors_header(const std::vector<TensorInfo>& tensors, const Json& metadata);

/// The reference writer's order: wide element types first, then by name. Returns indices into
/// `tensors`.
std::vector<size_t> safetensors_file_order(const std::vector<TensorInfo>& tensors);

}  // namespace danlu::weights
