#include <fmt/format.h>

#include <cstring>

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "weights/hf/safetensors_header.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

class SafetensorsSource final : public FileSource<uint64_t> {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : FileSource(path) {
    SafetensorsHeader header = parse_safetensors_header(file_.bytes(), path.string());
    metadata_ = std::move(header.metadata);
    std::vector<std::pair<TensorInfo, uint64_t>> tensors;
    for (SafetensorsEntry& entry : header.entries) {
      tensors.emplace_back(std::move(entry.info), header.data_offset + entry.begin);
    }
    set_tensors(std::move(tensors));
  }

  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name);
    check_range(infos_[index], begin, end, out.size());
    const size_t skip = static_cast<size_t>(begin) * dtype_size_bytes(infos_[index].dtype);
    if (!out.empty())
      std::memcpy(out.data(), file_.bytes().data() + locations_[index] + skip, out.size());
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name);
    return file_.bytes().subspan(locations_[index], infos_[index].size_bytes());
  }
};

}  // namespace

std::shared_ptr<const TensorSource> open_safetensors(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  return std::make_shared<SafetensorsSource>(file);
}

}  // namespace danlu::weights
