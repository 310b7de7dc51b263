// Training of models with experts: what routers add to the loss, and the flags by which others
// describe routers, which follow from config.json.
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

const std::string kGroup = "Experts";

std::vector<OptionSpec> balance_options() {
  return {
      {.name = "router_aux_loss_coef",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "factor of the load-balancing loss (0: none)",
       .aliases = {"moe_aux_loss_coeff", "moe_aux_loss_coef", "aux_loss_coef"},
       .range = at_least(0),
       .group = kGroup},
      {.name = "moe_aux_loss_scope",
       .default_text = "sequence",
       .help = "over which tokens it is worked out: of each sequence, which does not depend on "
               "batches and processes; of a micro-batch, as Megatron's; of a micro-batch in all "
               "layers at once, as Hugging Face's",
       .choices = {"sequence", "micro_batch", "model"},
       .group = kGroup},
      {.name = "moe_router_load_balancing_type",
       .default_text = "aux_loss",
       .help = "none and noaux_tc: no such loss; sinkhorn: none, and tokens go where Sinkhorn's "
               "balance of each sequence says; sparsemixer_topk: Phi-3.5-MoE's routers draw their "
               "picks; the others say what router a model has, which follows from config.json",
       .choices = {"aux_loss", "seq_aux_loss", "none", "noaux_tc", "sinkhorn", "softmax_topk",
                   "group_limited_greedy", "pai_megatron_aux_loss", "sparsemixer_topk"},
       .group = kGroup},
      {.name = "moe_z_loss_coeff",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "factor of the mean of squared log-sums of router logits (0: none)",
       .range = at_least(0),
       .group = kGroup},
      {.name = "moe_device_level_aux_loss_coeff",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "factor of DeepSeek-V2's balance of the router's groups of experts, which it calls "
               "devices: by their shares of the picks (0: none)",
       .range = at_least(0),
       .group = kGroup},
      {.name = "moe_comm_aux_loss_coeff",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "the same by how many tokens are sent to each group (0: none)",
       .range = at_least(0),
       .group = kGroup},
      {.name = "moe_expert_capacity_factor",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "of each sequence an expert takes at most this multiple of an even share; the rest "
               "is dropped (0 or less: nothing is)",
       .group = kGroup},
      {.name = "moe_token_drop_policy",
       .default_text = "probs",
       .help = "what an expert keeps: the largest weights, or the first tokens",
       .choices = {"probs", "position"},
       .group = kGroup},
      {.name = "moe_input_jitter_eps",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "what routers read is multiplied by noise of 1 plus or minus this (0: none)",
       .range = at_least(0).up_to(1),
       .group = kGroup},
      {.name = "moe_shared_expert_overlap",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "rows travel to experts and back while the shared expert computes",
       .aliases = {"moe_alltoall_overlap_comm", "moe_allgather_overlap_comm"},
       .group = kGroup},
      {.name = "moe_router_bias_update_rate",
       .type = OptionType::kFloat,
       .help = "by how much a step moves the bias of each expert's choice, as DeepSeek-V3 was "
               "balanced (default: 0, or 0.001 with moe_router_enable_expert_bias)",
       .range = at_least(0),
       .group = kGroup},
      {.name = "moe_router_enable_expert_bias",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "biases of the choice move at Megatron's rate",
       .group = kGroup},
  };
}

std::vector<OptionSpec> prediction_options() {
  return {
      {.name = "mtp_num_layers",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "train the model's layers that predict further ahead (multi-token prediction), as "
               "many as it has; 0: they stay as they are",
       .aliases = {"num_nextn_predict_layers"},
       .range = at_least(0),
       .group = kGroup},
      {.name = "mtp_loss_scaling_factor",
       .type = OptionType::kFloat,
       .default_text = "0.1",
       .help = "factor of the mean of their losses",
       .aliases = {"mtp_loss_scale"},
       .range = at_least(0),
       .group = kGroup},
      {.name = "mtp_after_norm",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "they read the model's last hidden states behind its final norm, as in Megatron and "
               "in what serves these models; false: before it, as in MindSpeed-LLM 2.0",
       .group = kGroup},
      {.name = "mtp_mem_efficient_logits",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"share_mtp_embedding_and_output_weight", "recompute_mtp_layer",
                   "recompute_mtp_norm"},
       .group = kGroup,
       .ignored_because = "these layers share table and head, hold few logits at a time, and are "
                          "recomputed as the last layer is"},
  };
}

}  // namespace

std::vector<OptionSpec> train_expert_options() {
  const auto described = [](std::string name, std::vector<std::string> aliases, OptionType type) {
    return OptionSpec{.name = std::move(name),
                      .type = type,
                      .help = "accepted",
                      .aliases = std::move(aliases),
                      .group = kGroup,
                      .ignored_because = "the architecture follows from config.json"};
  };
  const auto built_in = [](std::string name, std::vector<std::string> aliases, OptionType type) {
    return OptionSpec{.name = std::move(name),
                      .type = type,
                      .help = "accepted",
                      .aliases = std::move(aliases),
                      .group = kGroup,
                      .ignored_because = "experts have one implementation"};
  };
  std::vector<OptionSpec> all = balance_options();
  for (OptionSpec& spec : prediction_options()) all.push_back(std::move(spec));
  all.push_back(
      described("num_experts",
                {"moe_router_topk", "moe_router_score_function", "moe_router_group_topk",
                 "moe_router_num_groups", "moe_router_topk_scaling_factor", "moe_layer_freq",
                 "moe_intermediate_size", "moe_ffn_hidden_size", "n_shared_experts",
                 "moe_shared_expert_intermediate_size", "first_k_dense_replace", "n_group",
                 "topk_group", "routed_scaling_factor"},
                OptionType::kString));
  all.push_back(described("norm_topk_prob",
                          {"shared_expert_gate", "moe_router_pre_softmax", "seq_aux"},
                          OptionType::kBool));
  all.push_back(built_in("moe_router_dtype", {}, OptionType::kString));
  all.push_back({.name = "moe_token_dispatcher_type",
                 .help = "accepted: experts have one implementation; allgather drops no tokens",
                 .choices = {"allgather", "alltoall", "alltoall_seq", "flex"},
                 .group = kGroup});
  all.push_back(
      built_in("moe_grouped_gemm",
               {"moe_permutation_async_comm", "moe_permute_fusion", "moe_fb_overlap",
                "moe_revert_type_after_topk", "use_fused_moe_token_permute_and_unpermute",
                "router_gating_in_fp32", "mla_fa_without_pad", "mla_mm_split", "mla_zero_memory"},
               OptionType::kBool));
  all.push_back({.name = "moe_pad_expert_input_to_capacity",
                 .type = OptionType::kBool,
                 .help = "accepted beside a capacity factor",
                 .group = kGroup,
                 .ignored_because = "an expert computes the rows it has"});
  all.push_back(built_in("moe_zero_memory", {"moe_zero_memory_num_layers"}, OptionType::kString));
  all.back().may_be_alone = true;
  return all;
}

}  // namespace danlu::cli
