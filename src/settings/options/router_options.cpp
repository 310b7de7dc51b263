#include "settings/options/router_options.h"

#include "base/error.h"

namespace danlu::settings {
namespace {

BalanceLoss balance_scope(const std::string& text) {
  if (text == "micro_batch") return BalanceLoss::kBatch;
  return text == "model" ? BalanceLoss::kModel : BalanceLoss::kSequence;
}

/// Whether the named way of balancing adds a term to the loss.
bool adds_term(const std::string& type) { return type != "none" && type != "noaux_tc"; }

}  // namespace

RouterTraining router_training_from(const Options& options, const arch::ModelConfig& model) {
  RouterTraining routers;
  if (adds_term(options.get_string("moe_router_load_balancing_type")))
    routers.aux_loss_coef = options.get_float("router_aux_loss_coef");
  routers.z_loss_coef = options.get_float("moe_z_loss_coeff");
  routers.loss = balance_scope(options.get_string("moe_aux_loss_scope"));
  if (!routers.has_terms()) return routers;
  if (!model.has_experts()) {
    const char* const flag =
        routers.aux_loss_coef != 0 ? "router_aux_loss_coef" : "moe_z_loss_coeff";
    throw UsageError(tr("[train] {}: {} has no experts", options.given_as(flag), model.family),
                     tr("leave it out"));
  }
  const bool divided = options.get_int_or("pp", 1) > 1 || options.get_int_or("cp", 1) > 1;
  if (routers.loss == BalanceLoss::kModel && divided) {
    throw UsageError(
        tr("[train] {} model: a balance loss over all layers needs them, and all tokens, in one "
           "process",
           options.given_as("moe_aux_loss_scope")),
        tr("sequence and micro_batch work on every mesh"));
  }
  return routers;
}

}  // namespace danlu::settings
