// weights/torch/zip_reader.h: the table of contents of a stored (uncompressed) zip, as torch.save
// writes it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace danlu::weights::torch_file {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  ///< of the payload, from the start of the file
  uint64_t size = 0;    ///< bytes
  uint32_t crc32 = 0;
};

/// Reads and checks the central directory; payloads are touched by nobody but the caller.
class ZipReader {
 public:
  /// `file` must outlive the reader.
  /// Errors: ModelError "<origin>: …" for compressed or encrypted entries, duplicate or unsafe
  /// names, ranges that overlap or leave the file, more than kMaxEntries entries.
  ZipReader(std::span<const std::byte> file, std::string origin);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(const std::string& name) const;
  std::span<const std::byte> bytes(const ZipEntry& entry) const {
    return file_.subspan(entry.offset, entry.size);
  }
  /// bytes(), after comparing the checksum. Errors: ModelError.
  std::span<const std::byte> checked_bytes(const ZipEntry& entry) const;

  static constexpr uint64_t kMaxEntries = 4'000'000;

 private:
  struct Directory {
    uint64_t offset = 0, size = 0, num_entries = 0;
  };
  [[noreturn]] void fail(const std::string& what) const;
  uint64_t number(uint64_t offset, int num_bytes) const;
  Directory find_directory() const;
  Directory find_zip64_directory(uint64_t end_record) const;
  uint64_t read_entry(uint64_t at, const Directory& directory);
  void read_zip64_extra(std::span<const std::byte> extra, uint64_t& size, uint64_t& compressed,
                        uint64_t& offset) const;
  void check_name(const std::string& name) const;
  void check_overlaps(uint64_t directory_offset);

  std::span<const std::byte> file_;
  std::string origin_;
  std::vector<ZipEntry> entries_;
  std::vector<uint64_t> header_offsets_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace danlu::weights::torch_file
