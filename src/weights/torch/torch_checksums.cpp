#include "weights/torch/torch_checksums.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "weights/torch/zip_reader.h"

namespace danlu::weights::torch_file {

void check_torch_checksums(const std::filesystem::path& file) {
  constexpr size_t kStep = 16 << 20;
  const MappedFile mapped(file);
  if (!mapped.text().starts_with("PK\x03\x04")) return;
  const ZipReader zip(mapped.bytes(), file.string());
  for (const ZipEntry& entry : zip.entries()) {
    const std::span<const std::byte> bytes = zip.bytes(entry);
    uint32_t crc = libdeflate_crc32(0, nullptr, 0);
    for (size_t at = 0; at < bytes.size(); at += kStep) {
      const auto part = bytes.subspan(at, std::min(kStep, bytes.size() - at));
      crc = libdeflate_crc32(crc, part.data(), part.size());
      mapped.forget();
    }
    if (crc == entry.crc32) continue;
    throw ModelError(
        tr("{}: the checksum of record {} is not that of its content", file.string(), entry.name),
        tr("the file was damaged since it was written: copy it again"));
  }
}

}  // namespace danlu::weights::torch_file
