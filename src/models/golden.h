// models/golden.h: compares a model with tensors that another implementation dumped.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/batch.h"
#include "models/causal_lm.h"
#include "weights/tensor_source.h"

namespace danlu::models {

struct TensorDifference {
  std::string name;
  double max_abs = 0;  ///< largest |ours - theirs|; ids: how many differ
  double max_rel = 0;  ///< max_abs over the largest |theirs|
  double judged = 0;   ///< what is held against the tolerance: max_abs, gradients max_rel
  bool within = true;
};

struct GoldenReport {
  std::vector<TensorDifference> differences;  ///< worst first
  std::vector<std::string> not_compared;      ///< names in the file that mean nothing here
  /// "embeddings", "layer 2", "final norm", "head", or "" if every stage is within.
  std::string first_deviation;
  bool passed = true;
};

/// Runs the inputs found in `golden` and compares what is found there: input_ids [B,T] with
/// attention_mask and labels (-100 ignored, shifted here), logits, loss, grad.<parameter>,
/// hidden_states.<k>, long_input_ids and long_logits, gen_prompt_ids and gen_output_ids (greedy),
/// logits_merged (with `merged`). A model that sees pictures also has the pictures
/// (models/golden_pictures.h), image<i>.vision_embeds, position_ids [3,B,T], rope_deltas, and
/// gen_image, gen_video, gen_text with .prompt_ids and .output_ids. Masked positions are not
/// compared. `merged` gives the model with its adapters merged; it is called last of all, and may
/// let `model` go: one is needed at a time. Gradients are taken of the parameters the file names,
/// frozen ones included; they are left cleared, and what was frozen stays so. Errors: ModelError if
/// the file has none of it, or a shape that does not fit.
GoldenReport compare_with_golden(CausalLM& model, const weights::TensorSource& golden,
                                 double tolerance, const std::function<CausalLM&()>& merged = {});

/// Greedy continuation of one row by full forward passes. Shapes  ids [P]; result [P + new_tokens],
/// int64, CPU. packed: makes the batch of a pass, as where ids stand for pictures; empty:
/// pack_padded.
at::Tensor greedy_tokens(const CausalLM& model, const at::Tensor& prompt_P, int64_t new_tokens,
                         const std::function<PaddedBatch(const at::Tensor& ids_BT)>& packed = {});

}  // namespace danlu::models
