// weights/layout.h: how the tensors in a checkpoint's files are made of named global tensors.
//
// Every format is described by the same few words: a stored tensor is covered by pieces, and a
// piece is a rectangle of a global tensor. Reading, writing, re-splitting and checking all follow
// one description, so they cannot disagree.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/number_blocks.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// A rectangle of a stored tensor's matrix that shows a rectangle of a global tensor. The matrix of
/// a global tensor has shape[0] rows and the product of its other sizes as columns (Rect).
struct Piece {
  size_t global = 0;         ///< index into Layout::globals
  Rect of;                   ///< of the global tensor
  int64_t row = 0, col = 0;  ///< where the piece begins in the section's matrix
  /// section[row + j][col + i] = global[of.row + i][of.col + j].
  bool transposed = false;
  /// Written but not needed for reading: padding, and copies on other ranks.
  bool replica = false;

  int64_t stored_rows() const { return transposed ? of.cols : of.rows; }
  int64_t stored_cols() const { return transposed ? of.rows : of.cols; }
};

/// A run of a stored tensor's elements seen as a matrix.
struct Section {
  int64_t first = 0;  ///< its first element in the stored tensor, row-major
  int64_t rows = 0, cols = 0;
  std::vector<Piece> pieces = {};  ///< cover the matrix without overlap
};

/// A tensor as one file holds it.
struct StoredTensor {
  size_t file = 0;       ///< index into Layout::files
  TensorInfo info = {};  ///< its name, shape and dtype in that file
  /// GGUF: what its numbers become when they are written; info.dtype is the type before it, F32.
  std::optional<BlockType> blocks = {};
  /// By `first`, without overlap; elements between them are zeros (optimizer buffers).
  std::vector<Section> sections = {};

  uint64_t size_bytes() const;
};

struct Layout {
  std::vector<TensorInfo> globals;
  std::vector<std::string> files;  ///< relative to the checkpoint's directory
  std::vector<StoredTensor> tensors;
};

/// A section that is the whole of `info`, with its natural matrix and no pieces yet.
Section whole_section(const TensorInfo& info);

/// A stored tensor that is exactly the global tensor `global` under the name `name`.
StoredTensor whole_tensor(size_t file, std::string name, size_t global, const TensorInfo& info);

/// Errors: InternalError naming the tensor unless pieces lie inside their section and their global
/// tensor, cover every section once, and, where not replicas, every global tensor once.
void check_layout(const Layout& layout);

}  // namespace danlu::weights
