// layers/lora.h: a low-rank adapter of one linear layer (LoRA arXiv:2106.09685, DoRA
// arXiv:2402.09353).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <unordered_map>

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
  /// DoRA's squared row lengths where nothing is trained, so that passes need not measure them;
  /// undefined: they do.
  at::Tensor fixed_squares_O;

  void visit(Visitor& visitor);
};

/// An adapter that lies beside a model and not in its layers: what it has for some of them. A pass
/// says which of its rows have it (layers/adapter_runs.h).
struct AdapterSet {
  std::unordered_map<const Linear*, LoraAdapter> of;
  uint64_t id = 0;           ///< no other has the same while the program runs
  int64_t largest_rank = 0;  ///< of its matrices
  /// What it does to a row depends on that row alone, so that others of the pass may have another.
  bool mixes = true;

  /// nullptr: none.
  const LoraAdapter* find(const Linear& linear) const;
};
using AdapterSetPtr = std::shared_ptr<const AdapterSet>;

/// Row lengths of W + scale B A [O], f32 (f64 for f64): what DoRA's magnitude starts from.
/// quantized: as AdaptedBase's.
at::Tensor row_lengths(const at::Tensor& weight_OI, const LoraAdapter& adapter,
                       const ops::QuantizedPtr& quantized = {});

/// Measures fixed_squares_O. quantized: as AdaptedBase's.
void fix_row_lengths(const at::Tensor& weight_OI, LoraAdapter& adapter,
                     const ops::QuantizedPtr& quantized = {});

/// base_NO, the product of x_NI with the weight, with what the adapter adds, without dropout.
at::Tensor with_adapter(const at::Tensor& base_NO, const at::Tensor& x_NI,
                        const at::Tensor& weight_OI, const LoraAdapter& adapter,
                        const ops::QuantizedPtr& quantized = {});

/// The layer that an adapter changes.
struct AdaptedBase {
  at::Tensor weight_OI;
  ops::QuantizedPtr quantized = {};  ///< the weight's values, if held so; with gradient NF4 alone
  at::Tensor bias_O = {};            ///< undefined: none is added
  ops::MainGradPtr bias_grad = {};   ///< as ops::linear's
};

/// Output of the layer with its adapter. The bias is added where the layer alone adds it, before
/// rounding, so that an adapter that adds 0 changes no bit; behind DoRA's row lengths, which are a
/// constant in the gradient (paper §4.3, as PEFT). dropout_keys_N: as ops::dropout; undefined: no
/// dropout.
/// Shapes  x_NI [N, I]; result [N, O].
at::Tensor adapted_linear(const at::Tensor& x_NI, const AdaptedBase& base,
                          const LoraAdapter& adapter, const at::Tensor& dropout_keys_N = {});

/// The weight [O, I] whose products adapted_linear gives without dropout. Without gradient.
at::Tensor adapted_weight(const at::Tensor& weight_OI, const LoraAdapter& adapter);

}  // namespace danlu::layers
