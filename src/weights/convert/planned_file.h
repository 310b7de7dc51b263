// weights/convert/planned_file.h: a weight file whose every byte has its place before the first is
// written, so that its tensors can be written in any order, by several threads, and never held in
// memory.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace danlu::weights {

/// Bytes and where they go in the file.
struct PlacedBytes {
  uint64_t offset = 0;
  std::string bytes;
};

struct PlannedFile {
  uint64_t size_bytes = 0;
  /// Where tensor i's bytes (contiguous, row-major, little-endian) begin; in the planner's order.
  std::vector<uint64_t> tensor_offsets;
  /// All that is known now: headers, names, padding that is not zero.
  std::vector<PlacedBytes> known;
  /// What depends on the tensors' content, given their CRC-32 (the zip polynomial) in the same
  /// order; unset where the format has no checksums.
  std::function<std::vector<PlacedBytes>(std::span<const uint32_t> crc32)> seal;
};

}  // namespace danlu::weights
