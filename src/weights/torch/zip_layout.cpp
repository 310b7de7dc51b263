#include "weights/torch/zip_layout.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>

#include "base/error.h"
#include "weights/torch/zip_format.h"

namespace danlu::weights::torch_file {
namespace {

/// Names are UTF-8 (APPNOTE.TXT 4.4.4, bit 11).
constexpr uint64_t kUtf8Flag = 0x0800;
constexpr uint64_t kVersionPlain = 20, kVersionZip64 = 45;
/// torch's own field for padding: 'FB', filled with 'Z'.
constexpr uint64_t kPaddingField = 0x4246;
constexpr uint64_t kCrcInLocalHeader = 14;
constexpr uint64_t kMaxIn16 = 0xffff;

/// Zeros where `num_bytes` is more than the number fills.
std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i, value >>= 8) bytes += static_cast<char>(value & 0xff);
  return bytes;
}

bool needs_64(uint64_t value) { return value >= zip_format::kIn64; }
uint64_t in_32(uint64_t value) { return std::min(value, zip_format::kIn64); }

/// The zip64 extra field with these values; nothing if there are none.
std::string zip64_field(const std::vector<uint64_t>& values) {
  if (values.empty()) return {};
  std::string field =
      little_endian(zip_format::kZip64Field, 2) + little_endian(8 * values.size(), 2);
  for (const uint64_t value : values) field += little_endian(value, 8);
  return field;
}

}  // namespace

void ZipLayout::add(const std::string& name, const std::string& content) {
  const uint64_t offset =
      begin_entry({.name = name,
                   .size = content.size(),
                   .crc32 = libdeflate_crc32(0, content.data(), content.size())});
  known_.push_back({offset, content});
}

uint64_t ZipLayout::add_later(const std::string& name, uint64_t size_bytes) {
  return begin_entry({.name = name, .size = size_bytes, .is_later = true});
}

/// Writes the local header at the end so far; returns where the payload begins.
uint64_t ZipLayout::begin_entry(Entry entry) {
  entry.header = end_;
  const bool is_64 = needs_64(entry.size);
  // A local header must hold both sizes if it holds one.
  std::string extra = is_64 ? zip64_field({entry.size, entry.size}) : "";
  const uint64_t unpadded =
      entry.header + zip_format::kLocalBytes + entry.name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra += little_endian(kPaddingField, 2) + little_endian(padding, 2) + std::string(padding, 'Z');
  known_.push_back(
      {entry.header, little_endian(zip_format::kLocalSignature, 4) +
                         little_endian(is_64 ? kVersionZip64 : kVersionPlain, 2) +
                         little_endian(kUtf8Flag, 2) + little_endian(0, 2 + 2 + 2) +
                         little_endian(entry.crc32, 4) + little_endian(in_32(entry.size), 4) +
                         little_endian(in_32(entry.size), 4) + little_endian(entry.name.size(), 2) +
                         little_endian(extra.size(), 2) + entry.name + extra});
  const uint64_t payload = unpadded + padding;
  if (__builtin_add_overflow(payload, entry.size, &end_))
    throw InternalError(fmt::format("[ZipLayout] entry {} of {} bytes", entry.name, entry.size));
  entries_.push_back(std::move(entry));
  return payload;
}

/// The central directory and the end records.
std::string ZipLayout::directory(const std::vector<Entry>& entries, uint64_t offset) {
  std::string out;
  for (const Entry& entry : entries) {
    std::vector<uint64_t> large;
    if (needs_64(entry.size)) large = {entry.size, entry.size};
    if (needs_64(entry.header)) large.push_back(entry.header);
    const std::string extra = zip64_field(large);
    const uint64_t version = large.empty() ? kVersionPlain : kVersionZip64;
    out += little_endian(zip_format::kEntrySignature, 4) + little_endian(version, 2) +
           little_endian(version, 2) + little_endian(kUtf8Flag, 2) + little_endian(0, 2 + 2 + 2) +
           little_endian(entry.crc32, 4) + little_endian(in_32(entry.size), 4) +
           little_endian(in_32(entry.size), 4) + little_endian(entry.name.size(), 2) +
           little_endian(extra.size(), 2) + little_endian(0, 2 + 2 + 2 + 4) +
           little_endian(in_32(entry.header), 4) + entry.name + extra;
  }
  const uint64_t size = out.size(), end64 = offset + size;
  out += little_endian(zip_format::kEnd64Signature, 4) +
         little_endian(zip_format::kEnd64Bytes - 12, 8) + little_endian(kVersionZip64, 2) +
         little_endian(kVersionZip64, 2) + little_endian(0, 4 + 4) +
         little_endian(entries.size(), 8) + little_endian(entries.size(), 8) +
         little_endian(size, 8) + little_endian(offset, 8);
  out += little_endian(zip_format::kLocator64Signature, 4) + little_endian(0, 4) +
         little_endian(end64, 8) + little_endian(1, 4);
  const uint64_t count = std::min<uint64_t>(entries.size(), kMaxIn16);
  return out + little_endian(zip_format::kEndSignature, 4) + little_endian(0, 2 + 2) +
         little_endian(count, 2) + little_endian(count, 2) + little_endian(in_32(size), 4) +
         little_endian(in_32(offset), 4) + little_endian(0, 2);
}

std::vector<PlacedBytes> ZipLayout::checksums(std::vector<Entry> entries, uint64_t directory_offset,
                                              std::span<const uint32_t> crc32) {
  std::vector<PlacedBytes> placed;
  size_t next = 0;
  for (Entry& entry : entries) {
    if (!entry.is_later) continue;
    if (next == crc32.size()) throw InternalError("[ZipLayout] fewer checksums than entries");
    entry.crc32 = crc32[next++];
    placed.push_back({entry.header + kCrcInLocalHeader, little_endian(entry.crc32, 4)});
  }
  if (next != crc32.size()) throw InternalError("[ZipLayout] more checksums than entries");
  placed.push_back({directory_offset, directory(entries, directory_offset)});
  return placed;
}

PlannedFile ZipLayout::finish() && {
  PlannedFile file;
  file.known = std::move(known_);
  // Checksums do not change the directory's size.
  file.size_bytes = end_ + directory(entries_, end_).size();
  file.seal = [entries = std::move(entries_), end = end_](std::span<const uint32_t> crc32) {
    return checksums(entries, end, crc32);
  };
  return file;
}

}  // namespace danlu::weights::torch_file
