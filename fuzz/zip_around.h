// fuzz/zip_around.h: a pickle inside a well-formed zip, so that the fuzzer need not forge
// checksums.
#pragma once
#include <string>
#include <utility>

#include "weights/torch/zip_layout.h"

namespace danlu::fuzz {

/// A zip with a/data.pkl = `pickle` and two storages of 64 bytes.
inline std::string zip_around(const std::string& pickle) {
  weights::torch_file::ZipLayout zip;
  zip.add("a/data.pkl", pickle);
  zip.add("a/data/0", std::string(64, '0'));
  zip.add("a/data/1", std::string(64, '1'));
  const weights::PlannedFile plan = std::move(zip).finish();
  std::string file(plan.size_bytes, '\0');
  for (const auto& part : plan.known) file.replace(part.offset, part.bytes.size(), part.bytes);
  for (const auto& part : plan.seal({})) file.replace(part.offset, part.bytes.size(), part.bytes);
  return file;
}

}  // namespace danlu::fuzz
