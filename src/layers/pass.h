// layers/pass.h: what all layers of one forward pass share.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "ops/rotary.h"
#include "ops/segments.h"

namespace danlu::layers {

/// Immutable during the pass; recomputation in backward reads it again, so layers keep it alive.
struct Pass {
  ops::Segments segments;
  ops::RotaryTable rotary;  ///< undefined tables: no rotary embedding
  /// Stores new keys and values of a layer, gives all of them; empty: keys are the queries' own.
  std::function<std::pair<at::Tensor, at::Tensor>(int64_t layer, const at::Tensor& k_NKD,
                                                  const at::Tensor& v_NKD)>
      append_kv;
  at::Tensor dropout_keys_N;  ///< masks follow from them and the module's name; undefined: none
};

}  // namespace danlu::layers
