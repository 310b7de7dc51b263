// models/merge.h: merging adapters with proof that the model still says the same.
#pragma once
#include "models/causal_lm.h"

namespace danlu::models {

struct MergeReport {
  double max_abs = 0;  ///< largest logit difference, merged against adapted
  double largest_logit = 0;
  double relative() const { return largest_logit > 0 ? max_abs / largest_logit : max_abs; }
};

/// Logits [n, vocab] of a fixed batch of random token ids (a function of `seed` and the
/// vocabulary).
at::Tensor probe_logits(const CausalLM& model, uint64_t seed = 1);

/// Merges the adapters of an f32 model and compares the logits of probe_logits before and after.
/// Errors: ModelError with both figures if they differ by more than `tolerance` times the largest
/// logit, or are not finite; the model is merged then, so do not save it. InternalError without
/// adapters or unless f32.
MergeReport merge_checked(CausalLM& model, double tolerance);

struct RoundingReport {
  double max_abs = 0;      ///< largest logit difference
  double same_argmax = 1;  ///< share of positions whose likeliest token stays
};

/// Rounds every parameter to what `dtype` can hold and tells what that does to probe_logits.
/// Errors: ModelError for a parameter that `dtype` cannot hold.
RoundingReport round_parameters(CausalLM& model, DType dtype);

}  // namespace danlu::models
