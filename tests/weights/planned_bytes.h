// tests/weights/planned_bytes.h: a small PlannedFile written in memory.
#pragma once
#include <gtest/gtest.h>
#include <libdeflate.h>

#include <string>
#include <vector>

#include "weights/convert/planned_file.h"

namespace danlu::test {

/// The whole file, given its tensors' bytes. Fails the test where two writes overlap.
inline std::string planned_bytes(const weights::PlannedFile& plan,
                                 const std::vector<std::string>& tensors) {
  std::string file(plan.size_bytes, '\0');
  std::vector<bool> written(plan.size_bytes);
  const auto place = [&](uint64_t offset, const std::string& bytes, bool may_overwrite) {
    ASSERT_LE(offset + bytes.size(), file.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_TRUE(may_overwrite || !written[offset + i]) << "byte " << offset + i << " twice";
      written[offset + i] = true;
      file[offset + i] = bytes[i];
    }
  };
  for (const weights::PlacedBytes& known : plan.known) place(known.offset, known.bytes, false);
  std::vector<uint32_t> checksums;
  for (size_t i = 0; i < tensors.size(); ++i) {
    place(plan.tensor_offsets[i], tensors[i], false);
    checksums.push_back(libdeflate_crc32(0, tensors[i].data(), tensors[i].size()));
  }
  for (const weights::PlacedBytes& sealed : plan.seal(checksums))
    place(sealed.offset, sealed.bytes, true);
  return file;
}

}  // namespace danlu::test
