// layers/head.h: token embedding and output head.
#pragma once
#include "layers/linear.h"
#include "layers/parameter.h"
#include "ops/embedding.h"
#include "ops/norm_head.h"

namespace danlu::layers {

struct Embedding {
  Parameter weight;  ///< [V, H]
  at::Tensor forward(const at::Tensor& ids_N) const { return ops::embedding(ids_N, weight.tensor); }
};

struct Head {
  Linear linear;            ///< [V, H]; a tied head shares the embedding's tensor
  bool normalised = false;  ///< rows are used at length one
  at::Tensor effective_weight() const {
    return normalised ? ops::norm_head(linear.weight.tensor) : linear.weight.tensor;
  }
};

}  // namespace danlu::layers
