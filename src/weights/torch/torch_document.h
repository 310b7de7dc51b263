// weights/torch/torch_document.h: a `.pt` file as one value: the tree of Python objects it holds,
// its tensors by reference.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weights/tensor_source.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::torch_file {

struct TorchDocument {
  PyValue root;
  /// What PyValue::tensor(i) in the tree stands for. Names are those of open_torch_file, which
  /// gives the bytes.
  std::vector<TensorInfo> tensors;
};

/// Reads everything but the tensors' bytes: zip or legacy container. Values of classes that are no
/// part of a weight file are kept as kObject below settings and random states (`args`, `rng_state`,
/// …: docs/formats/torch_pickle.md), and are errors elsewhere. A tensor inside such an object is
/// kOmitted. Attributes of an OrderedDict (`_metadata`) and of tensors are dropped; defaultdict and
/// Counter become dict; an object used twice becomes two.
/// Errors: ModelError "<file>: …" as open_torch_file, and for values that contain themselves, keys
/// that stand twice, beyond kMaxDocumentValues values; IoError (unreadable).
TorchDocument read_torch_document(const std::filesystem::path& file);
TorchDocument read_torch_document(std::span<const std::byte> file, const std::string& origin);

inline constexpr size_t kMaxDocumentValues = 4'000'000;
inline constexpr size_t kMaxDocumentTextBytes = size_t{256} << 20;

}  // namespace danlu::weights::torch_file
