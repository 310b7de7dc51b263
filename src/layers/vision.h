// layers/vision.h: the vision tower of Qwen2-VL and Qwen2.5-VL: patches, blocks of attention over
// frames or windows, and the merger that makes hidden states of the decoder.
#pragma once
#include <memory>

#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/module.h"
#include "layers/norm.h"
#include "parallel/region.h"

namespace danlu::layers {

/// Between the blocks of a tower every rank of the tensor axis has all patches, also under sequence
/// parallelism: the numbers of patches need not divide over ranks. So `region` is not one of
/// sequences.
struct VisionPatches {
  Parameter weight;  ///< [D, channels, frames, height, width]
  void visit(Visitor& visitor) { visitor.parameter(weight); }
  /// Shapes  pixels_PX [P, X], X as arch::VisionConfig::patch_columns; result [P, D], of the
  /// weight's dtype.
  at::Tensor forward(const at::Tensor& pixels_PX) const;
};

/// x + attention(norm x), then x + mlp(norm x). Pass::segments are frames and Pass::windows
/// windows; a patch sees all of its own.
struct VisionBlock : Block {
  Norm norm1, norm2;
  int64_t num_heads = 0, head_dim = 0;  ///< of this rank
  bool sees_frame = true;               ///< false: it sees its window
  Linear qkv, proj;
  Mlp gated;        ///< without weights in a block whose MLP has no gate
  Linear fc1, fc2;  ///< of that one
  parallel::Region region{parallel::Group::alone(), false};

  void visit(Visitor& visitor) override;
  at::Tensor forward(const at::Tensor& x_PD, const std::shared_ptr<const Pass>& pass,
                     const Again& again, const Leaving& leaving) const override;

 private:
  at::Tensor attention(const at::Tensor& x_PD, const Pass& pass, const Again& again) const;
  at::Tensor mlp(const at::Tensor& x_PD, const std::shared_ptr<const Pass>& pass,
                 const Again& again) const;
};

struct VisionMerger {
  Norm norm;
  Linear fc1, fc2;
  parallel::Region region{parallel::Group::alone(), false};

  void visit(Visitor& visitor);
  /// Shapes  x_PD [P, D], the patches of each visual token one after another; result [M, H].
  at::Tensor forward(const at::Tensor& x_PD, const std::shared_ptr<const Pass>& pass) const;
};

}  // namespace danlu::layers
