// layers/embedding_noise.h: noise on the embeddings of a pass of training (NEFTune).
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::layers {

/// Sizes and keys of all tokens of the pass, on the host; undefined: no noise.
struct EmbeddingNoise {
  at::Tensor sizes_N;  ///< f64 [N]: the noise of a token's numbers is uniform in ± its size
  at::Tensor keys_N;   ///< int64 [N]: what the noise is a function of, with the column

  bool is_there() const { return sizes_N.defined(); }
};

}  // namespace danlu::layers
