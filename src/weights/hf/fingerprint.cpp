#include "weights/hf/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"

namespace danlu::weights {
namespace {

constexpr size_t kSamples = 16, kSampleBytes = size_t{1} << 16;

bool counts(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".bin") ||
         name.ends_with(".index.json");
}

uint64_t hash_samples(std::string_view content, uint64_t hash) {
  if (content.size() <= kSamples * kSampleBytes) return hash_bytes(content, hash);
  // The first sample starts at the first byte, the last one ends with the last.
  const size_t stride = (content.size() - kSampleBytes) / (kSamples - 1);
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t begin = i + 1 == kSamples ? content.size() - kSampleBytes : i * stride;
    hash = hash_bytes(content.substr(begin, kSampleBytes), hash);
  }
  return hash;
}

}  // namespace

uint64_t model_fingerprint(const std::filesystem::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file() && counts(entry.path())) files.push_back(entry.path());
  }
  return model_fingerprint(std::move(files));
}

uint64_t model_fingerprint(std::vector<fs::path> files) {
  std::sort(files.begin(), files.end());
  uint64_t hash = hash_bytes("");
  for (const fs::path& file : files) {
    const uintmax_t size = fs::file_size(file);
    hash = hash_bytes(fmt::format("{}:{};", file.filename().string(), size), hash);
    if (size > 0) hash = hash_samples(MappedFile(file).text(), hash);
  }
  return hash;
}

}  // namespace danlu::weights
