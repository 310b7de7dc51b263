// A torch file as a TensorSource: contiguous tensors are read where they lie, others gathered.
#include <fmt/format.h>

#include <cstring>

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "weights/source_base.h"
#include "weights/torch/torch_contents.h"

namespace danlu::weights {
namespace {

using torch_file::StridedTensor;

/// Copies elements [begin, end) of the row-major order, walking the strides like an odometer.
void gather(const StridedTensor& tensor, int64_t begin, int64_t end, std::byte* out) {
  const size_t item = dtype_size_bytes(tensor.info.dtype);
  const auto& shape = tensor.info.shape;
  std::vector<int64_t> index(shape.size());
  int64_t position = tensor.offset, rest = begin;
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = rest % shape[d];
    rest /= shape[d];
    position += index[d] * tensor.strides[d];
  }
  for (int64_t element = begin; element < end; ++element, out += item) {
    std::memcpy(out, tensor.storage.data() + static_cast<size_t>(position) * item, item);
    for (size_t d = shape.size(); d-- > 0;) {
      position += tensor.strides[d];
      if (++index[d] < shape[d]) break;
      position -= index[d] * tensor.strides[d];
      index[d] = 0;
    }
  }
}

class TorchSource final : public FileSource<StridedTensor> {
 public:
  explicit TorchSource(const std::filesystem::path& path) : FileSource(path) {
    std::vector<std::pair<TensorInfo, StridedTensor>> tensors;
    for (StridedTensor& tensor : torch_file::read_torch_contents(file_.bytes(), path.string())) {
      TensorInfo info = tensor.info;
      tensors.emplace_back(std::move(info), std::move(tensor));
    }
    set_tensors(std::move(tensors));
  }

  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    const StridedTensor& tensor = locations_[index_of(name)];
    check_range(tensor.info, begin, end, out.size());
    if (out.empty()) return;
    if (!tensor.is_contiguous()) return gather(tensor, begin, end, out.data());
    const size_t item = dtype_size_bytes(tensor.info.dtype);
    std::memcpy(out.data(),
                tensor.storage.data() + static_cast<size_t>(tensor.offset + begin) * item,
                out.size());
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    const StridedTensor& tensor = locations_[index_of(name)];
    if (!tensor.is_contiguous() || tensor.info.num_elements() == 0) return {};
    return tensor.storage.subspan(
        static_cast<size_t>(tensor.offset) * dtype_size_bytes(tensor.info.dtype),
        tensor.info.size_bytes());
  }
};

}  // namespace

std::shared_ptr<const TensorSource> open_torch_file(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  return std::make_shared<TorchSource>(file);
}

}  // namespace danlu::weights
