// layers/pass.h: what all layers of one forward pass share.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ops/attention.h"
#include "ops/rotary.h"
#include "ops/segments.h"

namespace danlu::layers {

class PassResults;

/// Immutable during the pass; recomputation in backward reads it again, so layers keep it alive.
struct Pass {
  ops::Segments segments;
  ops::RotaryTable rotary;  ///< undefined tables: no rotary embedding
  /// Stores new keys and values of a layer, gives attention over all of them; empty: keys are the
  /// queries' own.
  std::function<at::Tensor(int64_t layer, const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                           const at::Tensor& v_NKD, const ops::AttentionOptions& options)>
      attend;
  at::Tensor dropout_keys_N;  ///< masks follow from them and the module's name; undefined: none
  bool adapters = true;       ///< false: layers are those of the base model
  /// Where layers add what they give beside hidden states (layers/pass_results.h); null: nowhere,
  /// as in a pass that is made again. There as long as the forward pass.
  PassResults* results = nullptr;
  /// Of the rows between regions that this rank has, the first so many are tokens; others fill up.
  int64_t num_rows = 0;
  double loss_scale = 1;  ///< the factor that the loss is given before backward
};

}  // namespace danlu::layers
