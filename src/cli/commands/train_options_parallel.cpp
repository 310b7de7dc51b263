// What divides training over processes.
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {

std::vector<OptionSpec> train_parallel_options() {
  const std::string shard = "Sharding", launch = "Launch", split = "Model parallelism";
  const auto size = [&](std::string name, std::string help, std::vector<std::string> aliases) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kInt,
                      .default_text = "1",
                      .help = std::move(help),
                      .aliases = std::move(aliases),
                      .range = at_least(1),
                      .group = split};
  };
  const auto accepted = [&](std::string name, std::string why,
                            std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .help = "accepted",
                      .aliases = std::move(aliases),
                      .group = split,
                      .ignored_because = std::move(why)};
  };
  std::vector<OptionSpec> own = {
      {.name = "deepspeed",
       .help = "DeepSpeed configuration: a .json file, JSON text, or default-zero2, default-zero3, "
               "zero0 … zero3, zero2_offload, zero3_offload",
       .group = shard},
      {.name = "fsdp",
       .help =
           "HF Trainer's words: full_shard | shard_grad_op | hybrid_shard | hybrid_shard_zero2 | "
           "no_shard, offload, auto_wrap",
       .group = shard},
      {.name = "shard",
       .default_text = "none",
       .help = "what copies of the model share instead of each holding it: zero1 the optimizer's "
               "state, zero2 gradients too, zero3 parameters too",
       .choices = {"none", "zero1", "zero2", "zero3"},
       .group = shard},
      {.name = "offload",
       .type = OptionType::kList,
       .help = "optimizer, params: keep them in host memory",
       .group = shard},
      {.name = "offload_dir",
       .help = "files of this directory hold what --offload names (default: optimizer) instead of "
               "memory",
       .group = shard,
       .scope = OptionScope::kMachine},
      {.name = "fsdp_transformer_layer_cls_to_wrap",
       .help = "accepted",
       .aliases = {"fsdp_config", "fsdp_min_num_params"},
       .group = shard,
       .ignored_because = "the unit of sharding follows from the model; no class name is needed"},
      {.name = "use_distributed_optimizer",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "Megatron's name of --shard zero1",
       .group = shard},
      {.name = "overlap_grad_reduce",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"overlap_param_gather", "reuse_fp32_param"},
       .group = shard,
       .ignored_because = "sums and gathers always run beside the passes"},

      {.name = "ddp_timeout",
       .type = OptionType::kFloat,
       .default_text = "1800",
       .help = "seconds that processes wait for one another",
       .aliases = {"dist_timeout"},
       .range = above(0),
       .group = launch},
      {.name = "distributed_timeout_minutes",
       .type = OptionType::kFloat,
       .help = "the same in minutes, as Megatron names it",
       .range = above(0),
       .group = launch},
      {.name = "no_shared_storage",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "every machine prepares the data for itself, even where the cache is shared",
       .group = launch},
      {.name = "ddp_backend",
       .help = "accepted",
       .aliases = {"distributed_backend", "local_rank", "ddp_bucket_cap_mb"},
       .group = launch,
       .ignored_because = "processes find one another by the environment, and exchange by Gloo"},
      {.name = "ddp_find_unused_parameters",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"ddp_broadcast_buffers", "ddp_static_graph", "disable_gloo_group"},
       .group = launch,
       .ignored_because = "every gradient is exchanged, once a step"},

      size("tp", "tensor-parallel processes",
           {"tensor_model_parallel_size", "tensor_parallel_size"}),
      size("pp", "pipeline stages", {"pipeline_model_parallel_size"}),
      size("cp", "context-parallel processes", {"context_parallel_size", "sequence_parallel_size"}),
      size("ep", "expert-parallel processes", {"expert_model_parallel_size"}),
      size("dp", "data-parallel processes", {"data_parallel_size"}),
      {.name = "sequence_parallel",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "tensor-parallel processes share the tokens between layers too",
       .group = split},
      accepted("context_parallel_algo", "one process holds the whole sequence",
               {"cp_attention_mask_type", "ulysses_degree_in_cp", "cp_window_size"}),
      {.name = "use_cp_send_recv_overlap",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"kv_head_repeat_before_uly_alltoall"},
       .group = split,
       .ignored_because = "one process holds the whole sequence"},
      {.name = "num_layer_list",
       .type = OptionType::kList,
       .help = "layers of each pipeline stage, e.g. 11,13,19,21",
       .group = split},
      {.name = "noop_layers",
       .type = OptionType::kList,
       .help = "layer slots that stay empty, e.g. 0,63, so that stages divide the rest",
       .group = split},
      accepted("num_layers_per_virtual_pipeline_stage",
               "each process holds consecutive layers; results are the same", {"schedules_method"}),
  };
  return joined({std::move(own), train_launch_options()});
}

}  // namespace danlu::cli
