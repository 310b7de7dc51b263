#include <fmt/format.h>

#include <cstring>

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "weights/safetensors_header.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

class SafetensorsSource final : public SourceBase<uint64_t> {
 public:
  explicit SafetensorsSource(const std::filesystem::path& path) : file_(path) {
    SafetensorsHeader header = parse_safetensors_header(file_.bytes(), path.string());
    metadata_ = std::move(header.metadata);
    std::vector<std::pair<TensorInfo, uint64_t>> tensors;
    for (SafetensorsEntry& entry : header.entries) {
      tensors.emplace_back(std::move(entry.info), header.data_offset + entry.begin);
    }
    set_tensors(std::move(tensors));
  }

  void read(const std::string& name, std::span<std::byte> out) const override {
    read_range(name, 0, infos_[index_of(name, file_.path())].num_elements(), out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const size_t index = index_of(name, file_.path());
    check_range(infos_[index], begin, end, out.size());
    const size_t skip = static_cast<size_t>(begin) * dtype_size_bytes(infos_[index].dtype);
    if (!out.empty())
      std::memcpy(out.data(), file_.bytes().data() + locations_[index] + skip, out.size());
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const size_t index = index_of(name, file_.path());
    return file_.bytes().subspan(locations_[index], infos_[index].size_bytes());
  }
  std::filesystem::path file_of(const std::string& name) const override {
    index_of(name, file_.path());
    return file_.path();
  }

 private:
  MappedFile file_;
};

}  // namespace

std::shared_ptr<const TensorSource> open_safetensors(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  return std::make_shared<SafetensorsSource>(file);
}

}  // namespace danlu::weights
