#include "settings/options/router_options.h"

#include <algorithm>

#include "base/error.h"

namespace danlu::settings {
namespace {

/// The rate that Megatron takes with --moe-router-enable-expert-bias.
constexpr double kMegatronsRate = 1e-3;

BalanceLoss balance_scope(const std::string& text) {
  if (text == "micro_batch") return BalanceLoss::kBatch;
  return text == "model" ? BalanceLoss::kModel : BalanceLoss::kSequence;
}

/// Whether the named way of balancing adds a term to the loss.
bool adds_term(const std::string& type) {
  return type != "none" && type != "noaux_tc" && type != "sinkhorn";
}

void check_sinkhorn(const Options& options, const arch::ModelConfig& model) {
  const arch::ExpertConfig& experts = model.experts;
  const bool draws = experts.score == arch::RouterScore::kSparseMixer;
  if (experts.groups == 1 && !experts.has_choice_bias && !draws) return;
  throw UsageError(tr("[train] {} sinkhorn: routers of {} choose by more than scores",
                      options.given_as("moe_router_load_balancing_type"), model.family),
                   tr("leave it out; --router_aux_loss_coef balances every router"));
}

const char* group_flag(const RouterTraining& routers) {
  return routers.group_loss_coef != 0 ? "moe_device_level_aux_loss_coeff"
                                      : "moe_comm_aux_loss_coeff";
}

/// The flag that asks something of routers.
const char* flag_of(const RouterTraining& routers, const char* rate_flag) {
  if (routers.aux_loss_coef != 0) return "router_aux_loss_coef";
  if (routers.balances_groups()) return group_flag(routers);
  if (routers.z_loss_coef != 0) return "moe_z_loss_coeff";
  if (routers.capacity_factor > 0) return "moe_expert_capacity_factor";
  if (routers.sinkhorn) return "moe_router_load_balancing_type";
  return routers.input_jitter > 0 ? "moe_input_jitter_eps" : rate_flag;
}

void check_group_terms(const Options& options, const arch::ModelConfig& model,
                       const RouterTraining& routers) {
  if (!routers.balances_groups()) return;
  if (model.experts.groups == 1) {
    throw UsageError(tr("[train] {}: config.json of this {} has no groups of experts (n_group)",
                        options.given_as(group_flag(routers)), model.family),
                     tr("leave it out; --router_aux_loss_coef balances every router"));
  }
  if (routers.loss == BalanceLoss::kModel) {
    throw UsageError(
        tr("[train] {} is worked out for each layer, {} model for all at once",
           options.given_as(group_flag(routers)), options.given_as("moe_aux_loss_scope")),
        tr("leave one of them out"));
  }
}

/// As Megatron has it: its dispatcher by gathers drops nothing, and padding is up to the room.
void check_capacity_flags(const Options& options, const RouterTraining& routers) {
  const bool has_room = routers.capacity_factor > 0;
  if (has_room && options.get_string_or("moe_token_dispatcher_type", "") == "allgather") {
    throw UsageError(tr("[train] {}: {} allgather drops no tokens",
                        options.given_as("moe_expert_capacity_factor"),
                        options.given_as("moe_token_dispatcher_type")),
                     tr("alltoall does; or leave one of them out"));
  }
  if (!has_room && options.get_bool_or("moe_pad_expert_input_to_capacity", false)) {
    throw UsageError(tr("[train] {}: experts have as much room as they need",
                        options.given_as("moe_pad_expert_input_to_capacity")),
                     tr("leave it out, or give --moe-expert-capacity-factor"));
  }
}

}  // namespace

RouterTraining router_training_from(const Options& options, const arch::ModelConfig& model) {
  RouterTraining routers;
  if (adds_term(options.get_string_or("moe_router_load_balancing_type", "aux_loss"))) {
    routers.aux_loss_coef = options.get_float_or("router_aux_loss_coef", 0);
    routers.group_loss_coef = options.get_float_or("moe_device_level_aux_loss_coeff", 0);
    routers.group_sent_loss_coef = options.get_float_or("moe_comm_aux_loss_coeff", 0);
  }
  routers.z_loss_coef = options.get_float_or("moe_z_loss_coeff", 0);
  routers.capacity_factor = std::max(0.0, options.get_float_or("moe_expert_capacity_factor", 0));
  if (options.get_string_or("moe_token_drop_policy", "probs") == "position")
    routers.drop = DropPolicy::kPosition;
  const std::string type = options.get_string_or("moe_router_load_balancing_type", "aux_loss");
  routers.sinkhorn = type == "sinkhorn";
  routers.draws_picks =
      type == "sparsemixer_topk" && model.experts.score == arch::RouterScore::kSparseMixer;
  routers.input_jitter = options.get_float_or("moe_input_jitter_eps", 0);
  check_capacity_flags(options, routers);
  const bool moves = options.get_bool_or("moe_router_enable_expert_bias", false);
  routers.bias_update_rate =
      options.get_float_or("moe_router_bias_update_rate", moves ? kMegatronsRate : 0.0);
  routers.loss = balance_scope(options.get_string_or("moe_aux_loss_scope", "sequence"));
  if (!routers.changes_passes() && routers.bias_update_rate == 0) return routers;
  const char* const rate_flag = options.has_value("moe_router_bias_update_rate")
                                    ? "moe_router_bias_update_rate"
                                    : "moe_router_enable_expert_bias";
  if (!model.has_experts()) {
    const std::string flag = options.given_as(flag_of(routers, rate_flag));
    throw UsageError(tr("[train] {}: {} has no experts", flag, model.family), tr("leave it out"));
  }
  if (routers.bias_update_rate > 0 && !model.experts.has_choice_bias) {
    throw UsageError(
        tr("[train] {}: routers of {} have no bias", options.given_as(rate_flag), model.family),
        tr("leave it out; --router_aux_loss_coef balances every router"));
  }
  check_group_terms(options, model, routers);
  if (routers.sinkhorn) check_sinkhorn(options, model);
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
