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

struct RouterTraining {
  BalanceLoss loss = BalanceLoss::kSequence;
  double aux_loss_coef = 0;  ///< 0: no such term
  double z_loss_coef = 0;    ///< likewise
  bool has_terms() const { return aux_loss_coef != 0 || z_loss_coef != 0; }
  bool operator==(const RouterTraining&) const = default;
};

}  // namespace danlu::settings
