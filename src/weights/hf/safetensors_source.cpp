#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "weights/hf/safetensors_header.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// OCP 8-bit floating point, E4M3: exponents of bias 7, no infinities, all ones is no number.
std::array<float, 256> fp8_values() {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const int significand = exponent > 0 ? mantissa + 8 : mantissa;
    const float size = std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - 10);
    values[static_cast<size_t>(bits)] = bits & 128 ? -size : size;
  }
  values[0x7f] = values[0xff] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

/// Where a tensor begins in the file.
struct InFile {
  uint64_t offset;
  bool is_fp8;
};

class SafetensorsSource final : public FileSource<InFile> {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : FileSource(path) {
    SafetensorsHeader header = parse_safetensors_header(file_.bytes(), path.string());
    metadata_ = std::move(header.metadata);
    std::vector<std::pair<TensorInfo, InFile>> tensors;
    for (SafetensorsEntry& entry : header.entries) {
      tensors.emplace_back(std::move(entry.info),
                           InFile{header.data_offset + entry.begin, entry.is_fp8});
    }
    set_tensors(std::move(tensors));
  }

  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name);
    check_range(infos_[index], begin, end, out.size());
    const auto [offset, is_fp8] = locations_[index];
    const auto first = static_cast<size_t>(begin);
    if (is_fp8) return read_fp8(file_.bytes().data() + offset + first, out);
    const size_t skip = first * dtype_size_bytes(infos_[index].dtype);
    if (!out.empty()) std::memcpy(out.data(), file_.bytes().data() + offset + skip, out.size());
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name);
    if (locations_[index].is_fp8) return {};
    return file_.bytes().subspan(locations_[index].offset, infos_[index].size_bytes());
  }
  Storage storage(const std::string& name) const override {
    const size_t index = index_of(name);
    if (!locations_[index].is_fp8) return FileSource::storage(name);
    return {"F8_E4M3", static_cast<uint64_t>(infos_[index].num_elements())};
  }

 private:
  static void read_fp8(const std::byte* from, std::span<std::byte> out) {
    static const std::array<float, 256> values = fp8_values();
    for (size_t i = 0; i < out.size() / sizeof(float); ++i)
      std::memcpy(&out[i * sizeof(float)], &values[std::to_integer<size_t>(from[i])],
                  sizeof(float));
  }
};

}  // namespace

std::shared_ptr<const TensorSource> open_safetensors(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  return std::make_shared<SafetensorsSource>(file);
}

}  // namespace danlu::weights
