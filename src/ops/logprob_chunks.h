// ops/logprob_chunks.h: log-probabilities of a chunk's tokens by entries of the table alone, for
// devices without ATen's operators. What is left, a few numbers a token, is worked out on the host.
// Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/cross_entropy.h"

namespace danlu::ops {

/// M pairs of a row of the chunk and an id of the whole vocabulary: int64 on the host.
struct ChunkPairs {
  at::Tensor rows_M, ids_M;
};

/// f32 on the device.
struct ChunkNumbers {
  at::Tensor largest_C1;   ///< logit of the whole vocabulary
  at::Tensor total_C1;     ///< the sum of exp(logit - largest)
  at::Tensor expected_C1;  ///< the sum of exp(logit - largest) · logit; undefined: not asked for
  at::Tensor logits_M1;    ///< of the pairs
};

/// The numbers of logits [C, v], f32 and contiguous, which are changed. Ranks that share the
/// vocabulary call it together.
ChunkNumbers numbers_of_chunk(const at::Tensor& logits_Cv, const ChunkPairs& pairs,
                              const VocabularyShare& share, bool with_expected);

/// The gradient of the sum of grad_M times the pairs' log-probabilities by logits [C, v], f32 and
/// contiguous, which are changed. largest_C1: as above. total_C: the other number, on the host;
/// grad_M: f32 on the host.
at::Tensor grad_of_chunk(const at::Tensor& logits_Cv, const ChunkPairs& pairs,
                         const VocabularyShare& share, const at::Tensor& largest_C1,
                         const at::Tensor& total_C, const at::Tensor& grad_M);

/// Tensors of one device and dtype, flat, on the host: one copy for all of them.
std::vector<at::Tensor> on_host_together(const std::vector<at::Tensor>& tensors);

}  // namespace danlu::ops
