// parallel/parameter.h: a parameter, from construction to optimizer to checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "ops/main_grad.h"
#include "ops/quantized_linear.h"
#include "parallel/flat_layout.h"

namespace danlu::parallel {

/// A rectangle of a parameter's matrix that this rank holds, and how many ranks of the tensor axis
/// hold the same (a key head that several share; what is not cut at all).
struct Piece {
  arch::Rect rect;
  int64_t copies = 1;
};

/// What a rank holds of one parameter of the model or of an adapter.
struct Parameter {
  arch::ParamSpec spec{};     ///< the whole: name in HF's or PEFT's files, shape, role
  std::vector<Piece> pieces;  ///< in the order in which `tensor` joins them, one below the other
  at::Tensor tensor;          ///< the live leaf; undefined: the layer has none (no bias)
  int64_t place = 0;          ///< in the chain that a pass goes through (arch/pipeline.h)
  bool trainable = true;
  /// Along which axes the gradients are parts of a sum that ranks have of what they hold in common.
  /// The pipeline: the first and the last stage hold it, an embedding that the head is tied to.
  arch::Axes sums_on = {arch::Axis::kContext, arch::Axis::kExpert, arch::Axis::kData};
  /// Trained: where operators sum its gradient, shared with what is tied to it.
  std::shared_ptr<ops::MainGrad> main_grad = {};
  /// For answering alone: the values, of which `tensor` then has the shape and no memory.
  ops::QuantizedPtr quantized = {};

  bool defined() const { return tensor.defined(); }
  bool in_both_ends() const { return sums_on.has(arch::Axis::kPipeline); }
  const std::string& name() const { return spec.name; }
  /// Elements of the whole.
  int64_t whole_numel() const {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    return count;
  }
  bool is_whole() const { return defined() && tensor.sizes() == at::IntArrayRef(spec.shape); }
};

/// What the rank at `coord` holds of `spec`; copies are counted along the tensor axis. REQUIRES: as
/// arch::shard.
std::vector<Piece> pieces_of(const arch::ModelConfig& config, const arch::ParamSpec& spec,
                             const arch::Coord& coord);

/// Shape of the tensor that joins the pieces.
std::vector<int64_t> joined_shape(const std::vector<int64_t>& whole,
                                  const std::vector<Piece>& pieces);

/// What elements `held` of the joined pieces are: rectangles of the whole, in their order.
std::vector<Piece> pieces_of(const Parameter& parameter, const Range& held);

/// Visits every piece with its rows of a tensor that joins them: `visit(piece, rows)`.
template <typename Visit>
void for_each_piece(const Parameter& parameter, const at::Tensor& joined, const Visit& visit) {
  int64_t row = 0;
  const bool scalar = joined.dim() == 0;
  for (const Piece& piece : parameter.pieces) {
    visit(piece, scalar ? joined : joined.narrow(0, row, piece.rect.rows));
    row += piece.rect.rows;
  }
}

/// The rows and columns of `whole` that the pieces are, joined (a copy).
at::Tensor cut_out(const at::Tensor& whole, const std::vector<Piece>& pieces);

/// A tensor that is not cut: a layer made by hand.
Parameter whole_parameter(const std::string& name, const at::Tensor& tensor);

}  // namespace danlu::parallel
