// layers/lora.h: a low-rank adapter of one linear layer (LoRA arXiv:2106.09685, DoRA
// arXiv:2402.09353).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/module.h"
#include "parallel/group.h"
#include "parallel/parameter.h"

namespace danlu::layers {

struct LoraAdapter {
  parallel::Parameter a_RI, b_OR;
  parallel::Parameter magnitude_O;  ///< DoRA's row lengths; undefined: plain LoRA
  double scale = 1.0;               ///< alpha / rank, or alpha / sqrt(rank)
  double dropout = 0.0;             ///< on the adapter's input while training
  uint64_t dropout_salt = 0;        ///< the module's (ops/dropout.h)
  int64_t first_column = 0;         ///< of the whole weight; A holds this rank's from there on
  /// Ranks whose weights are other columns of the same rows: row lengths are sums over them.
  const parallel::Group* columns = &parallel::Group::alone();

  void visit(Visitor& visitor);
};

/// Row lengths of W + scale B A [O], f32 (f64 for f64): what DoRA's magnitude starts from.
/// quantized: as adapted_linear's.
at::Tensor row_lengths(const at::Tensor& weight_OI, const LoraAdapter& adapter,
                       const ops::QuantizedPtr& quantized = {});

/// Output of the layer with its adapter, bias not added. DoRA: the row lengths are a constant in
/// the gradient (paper §4.3, as PEFT). quantized: the weight's values, if they are held so; with
/// gradient NF4 alone. dropout_keys_N: as ops::dropout; undefined: no dropout.
/// Shapes  x_NI [N, I]; result [N, O].
at::Tensor adapted_linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                          const LoraAdapter& adapter, const at::Tensor& dropout_keys_N = {},
                          const ops::QuantizedPtr& quantized = {});

/// The weight [O, I] whose products adapted_linear gives without dropout. Without gradient.
at::Tensor adapted_weight(const at::Tensor& weight_OI, const LoraAdapter& adapter);

}  // namespace danlu::layers
