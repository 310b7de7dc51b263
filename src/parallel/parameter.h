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

/// A rectangle of a parameter's matrix that this rank holds.
struct Piece {
  arch::Rect rect;
  /// How many ranks of the tensor axis hold the same. A key head may be held by several, and what
  /// is not cut is held by all.
  int64_t copies = 1;
};

/// What a rank holds of one parameter of the model or of an adapter.
struct Parameter {
  arch::ParamSpec spec{};     ///< the whole: name in HF's or PEFT's files, shape, role
  std::vector<Piece> pieces;  ///< in the order in which `tensor` joins them, one below the other
  at::Tensor tensor;          ///< the live leaf; undefined: the layer has none (no bias)
  int64_t place = 0;          ///< in the chain that a pass goes through (arch/pipeline.h)
  bool trainable = true;
  /// The axes along which ranks hold the same and each has a part of its gradient, so that it must
  /// be summed. With the pipeline axis it is a tied table that the first and the last stage hold.
  arch::Axes sums_on = {arch::Axis::kContext, arch::Axis::kExpert, arch::Axis::kData};
  /// Where operators sum the gradient, if it is trained; a parameter tied to this one has the same.
  std::shared_ptr<ops::MainGrad> main_grad = {};
  /// The values in blocks, in a model that only answers. `tensor` then has a shape and no memory.
  ops::QuantizedPtr quantized = {};

  bool defined() const { return tensor.defined(); }
  bool in_both_ends() const { return sums_on.has(arch::Axis::kPipeline); }
  const std::string& name() const { return spec.name; }
  /// The number of elements of the whole parameter.
  int64_t whole_numel() const {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    return count;
  }
  bool is_whole() const { return defined() && tensor.sizes() == at::IntArrayRef(spec.shape); }
};

/// The pieces of `spec` that the rank at `coord` holds. REQUIRES: as arch::shard.
std::vector<Piece> pieces_of(const arch::ModelConfig& config, const arch::ParamSpec& spec,
                             const arch::Coord& coord);

/// The shape of the tensor that joins the pieces.
std::vector<int64_t> joined_shape(const std::vector<int64_t>& whole,
                                  const std::vector<Piece>& pieces);

/// The rectangles of the whole that elements `held` of the joined pieces make up, in their order.
std::vector<Piece> pieces_of(const Parameter& parameter, const Range& held);

/// Calls visit(piece, rows) for every piece, with its rows of a tensor that joins the pieces.
template <typename Visit>
void for_each_piece(const Parameter& parameter, const at::Tensor& joined, const Visit& visit) {
  int64_t row = 0;
  const bool scalar = joined.dim() == 0;
  for (const Piece& piece : parameter.pieces) {
    visit(piece, scalar ? joined : joined.narrow(0, row, piece.rect.rows));
    row += piece.rect.rows;
  }
}

/// A copy of the pieces of `whole`, joined.
at::Tensor cut_out(const at::Tensor& whole, const std::vector<Piece>& pieces);

/// A parameter that is not cut, for layers that are made by hand.
Parameter whole_parameter(const std::string& name, const at::Tensor& tensor);

}  // namespace danlu::parallel
