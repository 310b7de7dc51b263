// settings/router_training.h: how training keeps the routers of experts in balance. Flags:
// docs/experts.md.
#pragma once
#include <cstdint>

namespace danlu::settings {

enum class BalanceLoss {
  /// For each layer and each sequence by itself, averaged over sequences by their targets. The one
  /// form that does not depend on how a step is cut into micro-batches and ranks.
  kSequence,
  kBatch,  ///< for each layer over a micro-batch of one rank (Megatron's aux_loss)
  kModel,  ///< over the tokens of all layers of a micro-batch at once (Hugging Face's)
};

/// Which picks an expert keeps that more tokens of a sequence chose than it has room for.
enum class DropPolicy {
  kWeights,   ///< those with the largest weights
  kPosition,  ///< those of the first tokens
};

struct RouterTraining {
  BalanceLoss loss = BalanceLoss::kSequence;
  double aux_loss_coef = 0;  ///< 0: no such term
  double z_loss_coef = 0;    ///< likewise
  /// An expert takes at most this multiple of an even share of each sequence, rounded up; 0: all.
  double capacity_factor = 0;
  DropPolicy drop = DropPolicy::kWeights;
  /// By how much each step moves the bias of an expert's choice: up if it got fewer tokens than the
  /// mean, else down.
  double bias_update_rate = 0;
  /// DeepSeek-V2's terms over the groups of experts that the router knows: of a group's share of
  /// the picks, and of the tokens that have any pick in it. Not beside BalanceLoss::kModel.
  double group_loss_coef = 0, group_sent_loss_coef = 0;

  /// Training sends tokens where Sinkhorn's balance of each sequence says; weights and evaluation
  /// stay as they are. In place of the terms above.
  bool sinkhorn = false;
  /// Training multiplies what routers read by noise of 1 ± this.
  double input_jitter = 0;
  /// Phi-3.5-MoE's routers draw their picks by the weights that they give.
  bool draws_picks = false;

  bool has_noise() const { return input_jitter > 0 || draws_picks; }
  /// Whether routers decide over whole sequences, of which ranks may have parts.
  bool looks_at_sequences() const { return sinkhorn || capacity_factor > 0; }
  bool balances_groups() const { return group_loss_coef != 0 || group_sent_loss_coef != 0; }
  bool balances() const { return aux_loss_coef != 0 || balances_groups(); }
  bool has_terms() const { return balances() || z_loss_coef != 0; }
  /// Whether passes need to know of it.
  bool changes_passes() const { return has_terms() || looks_at_sequences() || has_noise(); }
  bool operator==(const RouterTraining&) const = default;
};

}  // namespace danlu::settings
