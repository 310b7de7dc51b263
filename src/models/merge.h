// models/merge.h: proof that a model with its adapters merged says what the adapted one does. What
// merging is stands in weights/lora/lora_source.h.
#pragma once
#include <memory>

#include "models/causal_lm.h"
#include "weights/lora/lora_source.h"

namespace danlu::models {

/// The model of a merged view; its weights are merged while they are read.
std::unique_ptr<CausalLM> load_merged(const weights::MergedModel& merged,
                                      const parallel::Mesh& mesh, at::ScalarType dtype,
                                      const at::Device& device);

/// Logits [n, vocab], or of a reward model its head's numbers [n, labels], or of an encoder
/// without a head its hidden states [n, hidden], of a fixed batch of
/// random token ids (a function of `seed` and the vocabulary), for a model that sees pictures with
/// one of random pixels.
at::Tensor probe_logits(const CausalLM& model, uint64_t seed = 1);

struct MergeReport {
  double max_abs = 0;  ///< largest logit difference, merged against adapted
  double largest_logit = 0;
  double effect = 0;  ///< largest logit difference that the adapter makes
  double relative() const { return largest_logit > 0 ? max_abs / largest_logit : max_abs; }
};

/// Compares probe_logits of a merged f32 model with those that the adapted one gave, and the base
/// before, which may be gone by now. Errors: ModelError with the figures if they differ by more
/// than `tolerance` times the largest logit, or by half of what the adapter does (of more than
/// f32's own rounding), or are not finite: such a merge must not be written.
MergeReport check_merged(const CausalLM& merged, const at::Tensor& adapted, const at::Tensor& base,
                         double tolerance);

/// How far apart two models are in their probe_logits.
struct LogitsReport {
  double max_abs = 0;      ///< largest logit difference
  double same_argmax = 1;  ///< share of positions whose likeliest token is the same
};
LogitsReport compare_logits(const at::Tensor& one, const at::Tensor& other);

/// Rounds every parameter to what `dtype` can hold and tells what that does to probe_logits.
/// Errors: ModelError for a parameter that `dtype` cannot hold.
LogitsReport round_parameters(CausalLM& model, DType dtype);

}  // namespace danlu::models
