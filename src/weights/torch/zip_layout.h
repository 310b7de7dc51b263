// weights/torch/zip_layout.h: where the entries of a stored zip lie when their sizes are known
// before their content is.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weights/convert/planned_file.h"

namespace danlu::weights::torch_file {

/// Places entries one after the other, each payload at a multiple of 64 bytes, and writes their
/// headers. Real sizes and checksums stand in the local headers (no data descriptors), so that
/// readers that stream from the front work too. zip64 fields appear where a size or an offset needs
/// them; the zip64 end record always, as torch has it.
class ZipLayout {
 public:
  static constexpr uint64_t kAlignment = 64;

  /// An entry whose content is known. REQUIRES: names are distinct.
  void add(const std::string& name, const std::string& content);
  /// An entry whose content comes later. Returns where it begins. Its checksum is taken by seal()
  /// in the order of these calls.
  uint64_t add_later(const std::string& name, uint64_t size_bytes);
  /// Ends the file. Local headers, known contents and padding are in `known`, the rest in `seal`.
  PlannedFile finish() &&;

 private:
  struct Entry {
    std::string name;
    uint64_t header = 0, size = 0;
    uint32_t crc32 = 0;
    bool is_later = false;
  };
  uint64_t begin_entry(Entry entry);
  static std::string directory(const std::vector<Entry>& entries, uint64_t offset);
  static std::vector<PlacedBytes> checksums(std::vector<Entry> entries, uint64_t directory_offset,
                                            std::span<const uint32_t> crc32);

  std::vector<Entry> entries_;
  std::vector<PlacedBytes> known_;
  uint64_t end_ = 0;
};

}  // namespace danlu::weights::torch_file
