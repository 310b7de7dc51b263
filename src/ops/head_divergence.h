// ops/head_divergence.h: how far a head's distributions are from another model's, with gradient,
// without all logits.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ops/cross_entropy.h"

namespace danlu::ops {

/// Columns of the head's logits that a rank has, and how many there are in all.
struct HeadColumns {
  int64_t first = 0, count = 0, whole = 0;
};

/// The other model's logits at rows [begin, begin + count) of those that are compared: [count,
/// columns.count], f32 (f64 of f64), fewer columns where the other's tokens end before. Called in
/// forward and again in backward, in the same order on every rank that shares the head.
using OtherLogits =
    std::function<at::Tensor(int64_t begin, int64_t count, const HeadColumns& columns)>;

struct DivergenceOptions {
  /// β of the generalised Jensen-Shannon divergence of the head's P and the other's Q: 0 is
  /// KL(Q‖P), 1 is KL(P‖Q), between them β KL(Q‖M) + (1 − β) KL(P‖M), M = β Q + (1 − β) P (GKD,
  /// arXiv 2306.13649; TRL's generalized_jsd_loss).
  double beta = 0.5;
  double temperature = 1;  ///< both logits are divided by it; > 0
  /// > 0: P and Q are over the K tokens that are likeliest to the other; of equally likely ones the
  /// lower ids are taken.
  int64_t topk = 0;
  /// For how many rows logits exist at one time; 0: for 256 to 8192, so that one tensor of that
  /// size has 64 MB, or more where the vocabulary is large. About twelve exist at once.
  int64_t chunk_rows = 0;
  bool with_logprobs = true;  ///< false: HeadDivergence::logprobs_M stays undefined
};

/// Numbers of M rows; f32 (f64 for f64), with grad.
struct HeadDivergence {
  at::Tensor divergences_M;  ///< in nats, over tokens that both have
  at::Tensor logprobs_M;     ///< of ids_M over the whole vocabulary, without temperature
};

/// For logits = hidden weight^T + addition. They are made a chunk of rows at a time, in forward and
/// again in backward, so nothing of their size is kept.
/// Shapes  hidden_NH [N, H]; weight_VH [V, H], or this rank's rows of it (options.share); rows_M,
///         ids_M int64 [M] on the host: rows ascend, each once.
/// Dtypes  as head_cross_entropy. Grad  through all four factors, with a share as
///         head_token_logprobs.
/// Device  what both factors are on; results too, but on the host where the device computes
///         through its table alone (device_of_numbers in ops/pointwise.h), which compares no topk.
/// Errors  ModelError for rows or ids that do not exist.
HeadDivergence head_divergence(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                               const at::Tensor& rows_M, const at::Tensor& ids_M,
                               const OtherLogits& other, const HeadOptions& options = {},
                               const HeadAddition& addition = {},
                               const DivergenceOptions& how = {});

}  // namespace danlu::ops
