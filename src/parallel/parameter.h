// parallel/parameter.h: a parameter, from construction to optimizer to checkpoint.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "ops/main_grad.h"
#include "ops/nf4.h"
#include "ops/quantized_linear.h"
#include "parallel/flat_layout.h"
#include "parallel/group.h"

namespace danlu::parallel {

/// A rectangle of a parameter's matrix that this rank holds.
struct HeldRect {
  arch::Rect rect;
  /// The number of ranks of the tensor axis that hold it. Several may hold the same key head, and
  /// all hold what is not cut.
  int64_t holders = 1;
};

/// What a rank holds of one parameter of the model or of an adapter.
struct Parameter {
  arch::ParamSpec spec{};       ///< the whole: name in HF's or PEFT's files, shape, role
  std::vector<HeldRect> rects;  ///< in the order in which `tensor` joins them, one below the other
  at::Tensor tensor;            ///< the live leaf; undefined: the layer has none (no bias)
  int64_t place = 0;            ///< in the chain that a pass goes through (arch/pipeline.h)
  bool trainable = true;
  /// Whether ranks of the tensor axis that hold the same rectangle each have a part of its
  /// gradient. It is then summed over them, as every gradient is over the axes of spec.copied_on().
  bool sums_over_tensor = false;
  /// Whether it is a tied table that the first and the last stage of a pipeline both hold.
  bool in_both_ends = false;
  /// Where operators sum the gradient, if it is trained; a parameter tied to this one has the same.
  std::shared_ptr<ops::MainGrad> main_grad = {};
  /// A rectangle of the whole matrix that stays as it is though the rest is trained.
  std::optional<arch::Rect> fixed = {};
  /// The values, if they are quantised: in blocks, in a model that only answers, or in NF4.
  /// `tensor` then has a shape and no memory.
  ops::QuantizedPtr quantized = {};

  bool defined() const { return tensor.defined(); }
  const std::string& name() const { return spec.name; }
  /// The number of elements of the whole parameter.
  int64_t whole_numel() const {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    return count;
  }
  /// What has memory: `tensor`, or the bytes of a matrix in NF4.
  at::Tensor held() const;
  /// Puts other memory in its place.
  void hold(const at::Tensor& memory);
  bool is_whole() const { return defined() && tensor.sizes() == at::IntArrayRef(spec.shape); }
};

/// The rectangles of `spec` that the rank at `coord` holds. REQUIRES: as arch::shard.
std::vector<HeldRect> held_rects(const arch::ModelConfig& config, const arch::ParamSpec& spec,
                                 const arch::Coord& coord);

/// The shape of the tensor that joins the rectangles.
std::vector<int64_t> joined_shape(const std::vector<int64_t>& whole,
                                  const std::vector<HeldRect>& rects);

/// The rectangles of the whole that elements `held` of the joined ones make up, in their order.
std::vector<HeldRect> held_rects(const Parameter& parameter, const Range& held);

/// Calls visit(held, rows) for every rectangle, with its rows of a tensor that joins them.
template <typename Visit>
void for_each_rect(const Parameter& parameter, const at::Tensor& joined, const Visit& visit) {
  int64_t row = 0;
  const bool scalar = joined.dim() == 0;
  for (const HeldRect& held : parameter.rects) {
    visit(held, scalar ? joined : joined.narrow(0, row, held.rect.rows));
    row += held.rect.rows;
  }
}

/// A copy of these rectangles of `whole`, joined.
at::Tensor cut_out(const at::Tensor& whole, const std::vector<HeldRect>& rects);

/// Calls visit(part) for what of `joined`, which joins the parameter's rectangles, is fixed.
void for_each_fixed(const Parameter& parameter, const at::Tensor& joined_RC,
                    const std::function<void(const at::Tensor& part_RC)>& visit);

/// The whole matrix of which ranks of `tensor` hold `joined_RC` in the parameter's rectangles, to
/// the bit, though several hold the same; itself where this rank holds all. No gradient. f32.
/// Collective where the matrix is cut.
at::Tensor put_together(const Group& tensor, const Parameter& parameter,
                        const at::Tensor& joined_RC);

/// A parameter that is not cut, for layers that are made by hand.
Parameter whole_parameter(const std::string& name, const at::Tensor& tensor);

}  // namespace danlu::parallel
