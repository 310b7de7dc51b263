// What asks for several processes: parsed in full, honoured where one process can.
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
  return {
      {.name = "deepspeed",
       .help = "DeepSpeed configuration: a .json file, JSON text, or default-zero2, default-zero3, "
               "zero0 … zero3, zero2_offload, zero3_offload",
       .group = shard},
      {.name = "fsdp",
       .help = "HF Trainer's words: full_shard | shard_grad_op | no_shard, offload, auto_wrap",
       .group = shard},
      {.name = "shard",
       .default_text = "none",
       .help = "optimizer, gradient and parameter sharding over processes",
       .choices = {"none", "zero1", "zero2", "zero3"},
       .group = shard},
      {.name = "offload",
       .type = OptionType::kList,
       .help = "optimizer, params: keep them on the host",
       .group = shard},
      {.name = "fsdp_transformer_layer_cls_to_wrap",
       .help = "accepted",
       .aliases = {"fsdp_config", "fsdp_min_num_params"},
       .group = shard,
       .ignored_because = "the unit of sharding follows from the model; no class name is needed"},
      {.name = "use_distributed_optimizer",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"overlap_grad_reduce", "overlap_param_gather", "reuse_fp32_param"},
       .group = shard,
       .ignored_because = "one process has nothing to distribute"},

      {.name = "nproc",
       .type = OptionType::kInt,
       .help = "processes on this machine",
       .aliases = {"nproc_per_node"},
       .group = launch,
       .environment = "NPROC_PER_NODE"},
      {.name = "nnodes",
       .type = OptionType::kInt,
       .help = "machines",
       .group = launch,
       .environment = "NNODES"},
      {.name = "node_rank",
       .type = OptionType::kInt,
       .help = "number of this machine",
       .group = launch,
       .environment = "NODE_RANK"},
      {.name = "master_addr",
       .help = "address of machine 0",
       .group = launch,
       .environment = "MASTER_ADDR"},
      {.name = "master_port",
       .type = OptionType::kInt,
       .help = "rendezvous port",
       .group = launch,
       .environment = "MASTER_PORT"},
      {.name = "ddp_timeout",
       .help = "accepted",
       .aliases = {"distributed_timeout_minutes", "distributed_backend", "local_rank",
                   "ddp_backend", "ddp_find_unused_parameters"},
       .group = launch,
       .ignored_because = "one process communicates with nobody"},

      size("tp", "tensor-parallel processes",
           {"tensor_model_parallel_size", "tensor_parallel_size"}),
      size("pp", "pipeline stages", {"pipeline_model_parallel_size"}),
      size("cp", "context-parallel processes", {"context_parallel_size"}),
      size("ep", "expert-parallel processes", {"expert_model_parallel_size"}),
      size("dp", "data-parallel processes", {"data_parallel_size"}),
      {.name = "sequence_parallel",
       .type = OptionType::kBool,
       .help = "accepted",
       .group = split,
       .ignored_because = "it needs tensor parallelism, of which there is none with one process"},
      accepted("context_parallel_algo", "one process holds the whole sequence",
               {"cp_attention_mask_type", "use_cp_send_recv_overlap",
                "kv_head_repeat_before_uly_alltoall", "ulysses_degree_in_cp"}),
      accepted("num_layers_per_virtual_pipeline_stage", "one process holds all layers",
               {"num_layer_list", "noop_layers", "schedules_method"}),
  };
}

}  // namespace danlu::cli
