#include "weights/torch/zip_reader.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "weights/torch/zip_format.h"

namespace danlu::weights::torch_file {
namespace {

using namespace zip_format;

constexpr uint64_t kMaxComment = 65535;

}  // namespace

void ZipReader::fail(const std::string& what) const {
  throw ModelError(tr("{}: not a valid torch zip file: {}", origin_, what),
                   tr("the file may be cut off or damaged: download or copy it again"));
}

uint64_t ZipReader::number(uint64_t offset, int num_bytes) const {
  if (offset > file_.size() || file_.size() - offset < static_cast<uint64_t>(num_bytes)) {
    fail(tr("a record at byte {} reaches beyond the end", offset));
  }
  uint64_t value = 0;
  for (int i = num_bytes - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<uint64_t>(file_[offset + i]);
  return value;
}

ZipReader::ZipReader(std::span<const std::byte> file, std::string origin)
    : file_(file), origin_(std::move(origin)) {
  const Directory directory = find_directory();
  if (directory.offset > file_.size() || directory.size > file_.size() - directory.offset) {
    fail("the central directory lies beyond the end");
  }
  if (directory.num_entries > kMaxEntries || directory.num_entries > directory.size / kEntryBytes) {
    fail(
        tr("{} entries do not fit a directory of {} bytes", directory.num_entries, directory.size));
  }
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.num_entries; ++i) at = read_entry(at, directory);
  check_overlaps(directory.offset);
}

ZipReader::Directory ZipReader::find_directory() const {
  if (file_.size() < kEndBytes) fail("it is too short");
  const uint64_t last = file_.size() - kEndBytes;
  const uint64_t first = last > kMaxComment ? last - kMaxComment : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    // The comment must reach exactly to the end: a signature inside other data does not count.
    if (number(at, 4) != kEndSignature || at + kEndBytes + number(at + 20, 2) != file_.size())
      continue;
    if (number(at + 4, 2) != number(at + 6, 2)) fail("it is split over several files");
    if (at >= kLocator64Bytes && number(at - kLocator64Bytes, 4) == kLocator64Signature) {
      return find_zip64_directory(at);
    }
    return {number(at + 16, 4), number(at + 12, 4), number(at + 10, 2)};
  }
  fail("its end record is missing");
}

ZipReader::Directory ZipReader::find_zip64_directory(uint64_t end_record) const {
  const uint64_t at = number(end_record - kLocator64Bytes + 8, 8);
  if (at > file_.size() || file_.size() - at < kEnd64Bytes || number(at, 4) != kEnd64Signature) {
    fail("its zip64 end record is missing");
  }
  return {number(at + 48, 8), number(at + 40, 8), number(at + 32, 8)};
}

uint64_t ZipReader::read_entry(uint64_t at, const Directory& directory) {
  if (number(at, 4) != kEntrySignature) fail("an entry of the central directory is damaged");
  const uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
  const uint64_t name_bytes = number(at + 28, 2), extra_bytes = number(at + 30, 2),
                 comment_bytes = number(at + 32, 2);
  const uint64_t next = at + kEntryBytes + name_bytes + extra_bytes + comment_bytes;
  if (next > directory.offset + directory.size) fail("the central directory is cut off");
  uint64_t compressed = number(at + 20, 4), size = number(at + 24, 4), header = number(at + 42, 4);
  ZipEntry entry;
  entry.name.assign(reinterpret_cast<const char*>(file_.data()) + at + kEntryBytes, name_bytes);
  entry.crc32 = static_cast<uint32_t>(number(at + 16, 4));
  read_zip64_extra(file_.subspan(at + kEntryBytes + name_bytes, extra_bytes), size, compressed,
                   header);
  check_name(entry.name);
  if (flags & 1) fail(tr("entry {} is encrypted", entry.name));
  if (method != 0 || compressed != size) {
    fail(tr("entry {} is compressed (torch.save stores entries as they are)", entry.name));
  }
  if (number(header, 4) != kLocalSignature) fail(tr("entry {} has no local header", entry.name));
  entry.offset = header + kLocalBytes + number(header + 26, 2) + number(header + 28, 2);
  entry.size = size;
  if (entry.offset > directory.offset || size > directory.offset - entry.offset) {
    fail(tr("entry {} of {} bytes at {} reaches into the central directory", entry.name, size,
            entry.offset));
  }
  if (!by_name_.emplace(entry.name, entries_.size()).second)
    fail(tr("entry {} stands twice", entry.name));
  entries_.push_back(std::move(entry));
  header_offsets_.push_back(header);
  return next;
}

void ZipReader::read_zip64_extra(std::span<const std::byte> extra, uint64_t& size,
                                 uint64_t& compressed, uint64_t& offset) const {
  const auto at = [&](size_t position, int num_bytes) {
    return number(static_cast<uint64_t>(extra.data() - file_.data()) + position, num_bytes);
  };
  for (size_t position = 0; position + 4 <= extra.size();) {
    const uint64_t id = at(position, 2), length = at(position + 2, 2);
    position += 4;
    if (length > extra.size() - position) fail("an extra field is cut off");
    if (id == kZip64Field) {
      // Only the fields that overflowed are there, in this order.
      size_t field = position;
      for (uint64_t* value : {&size, &compressed, &offset}) {
        if (*value != kIn64) continue;
        if (field + 8 > position + length) fail("a zip64 field is missing");
        *value = at(field, 8);
        field += 8;
      }
    }
    position += length;
  }
}

void ZipReader::check_name(const std::string& name) const {
  const bool drive = name.size() > 1 && name[1] == ':';
  const bool unsafe = name.empty() || name.front() == '/' || drive ||
                      name.find('\\') != std::string::npos || name.find('\0') != std::string::npos;
  bool climbs = false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    climbs |= name.compare(begin, end - begin, "..") == 0;
    begin = end + 1;
  }
  if (unsafe || climbs) {
    std::string shown = name;
    std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20; }, '?');
    fail(tr("entry name \"{}\" is not a plain relative path", shown));
  }
}

void ZipReader::check_overlaps(uint64_t directory_offset) {
  std::vector<size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return header_offsets_[a] < header_offsets_[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const ZipEntry& entry = entries_[order[i]];
    const uint64_t limit = i + 1 < order.size() ? header_offsets_[order[i + 1]] : directory_offset;
    if (entry.offset + entry.size > limit)
      fail(tr("entry {} overlaps the one after it", entry.name));
  }
}

const ZipEntry* ZipReader::find(const std::string& name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

std::span<const std::byte> ZipReader::checked_bytes(const ZipEntry& entry) const {
  const auto payload = bytes(entry);
  if (libdeflate_crc32(0, payload.data(), payload.size()) != entry.crc32) {
    fail(tr("the checksum of entry {} does not match its content", entry.name));
  }
  return payload;
}

}  // namespace danlu::weights::torch_file
