// tests/weights/edit_torch_file.h: a .pt file with something changed, as another program or a
// damaged disk might have left it.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "weights/bytes.h"
#include "weights/planned_bytes.h"
#include "weights/torch/torch_document.h"
#include "weights/torch/torch_writer.h"

namespace danlu::test {

/// What an edit may change: the tree, the tensors it refers to, and their bytes beside them.
struct TorchParts {
  weights::torch_file::PyValue root;
  std::vector<weights::TensorInfo> tensors;
  std::vector<std::string> bytes;

  /// Index of a tensor by its name; a test failure and 0 if there is none.
  size_t at(const std::string& name) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == name) return i;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
  }
};

/// Writes the file again with what `edit` made of it.
inline void edit_torch_file(const std::filesystem::path& file,
                            const std::function<void(TorchParts&)>& edit) {
  weights::torch_file::TorchDocument document = weights::torch_file::read_torch_document(file);
  TorchParts parts{std::move(document.root), std::move(document.tensors), {}};
  {
    const auto source = weights::open_torch_file(file);
    for (const weights::TensorInfo& info : parts.tensors)
      parts.bytes.push_back(read_tensor(*source, info.name));
  }
  edit(parts);
  const std::string stem = file.stem().string();
  write_file_atomic(
      file, planned_bytes(weights::torch_file::plan_torch_file(parts.root, parts.tensors, stem),
                          parts.bytes));
}

}  // namespace danlu::test
