#include "weights/torch/torch_document.h"

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "weights/torch/torch_contents.h"

namespace danlu::weights::torch_file {

TorchDocument read_torch_document(std::span<const std::byte> file, const std::string& origin) {
  TorchDocument document;
  for (StridedTensor& tensor : read_torch_contents(file, origin, &document.root)) {
    document.tensors.push_back(std::move(tensor.info));
  }
  return document;
}

TorchDocument read_torch_document(const std::filesystem::path& file) {
  refuse_lfs_pointer(file, "tensors");
  const MappedFile mapped(file);
  return read_torch_document(mapped.bytes(), file.string());
}

}  // namespace danlu::weights::torch_file
