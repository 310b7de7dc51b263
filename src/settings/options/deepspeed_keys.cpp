#include "settings/options/deepspeed_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::settings {
namespace {

using Names = std::vector<std::string>;

struct Section {
  Names honoured;  ///< or, in some of its values, listed by who reads it
  Names ignored;   ///< of speed, memory or other programs
};

/// Names of DeepSpeed's configuration (runtime/config.py, runtime/constants.py and
/// runtime/zero/config.py beside them), of several versions: what is missing here is warned of, not
/// refused.
const std::map<std::string, Section>& sections() {
  static const std::map<std::string, Section> all = {
      {"",
       {{"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
         "gradient_clipping", "optimizer", "scheduler", "fp16", "bf16", "bfloat16",
         "zero_optimization"},
        {"activation_checkpointing",
         "aio",
         "allgather_size",
         "amp",
         "autotuning",
         "checkpoint",
         "comet",
         "comms_logger",
         "communication_data_type",
         "compile",
         "compression_training",
         "csv_monitor",
         "curriculum_learning",
         "data_efficiency",
         "data_types",
         "disable_allgather",
         "dump_state",
         "eigenvalue",
         "elasticity",
         "flops_profiler",
         "fp32_allreduce",
         "gradient_predivide_factor",
         "graph_harvesting",
         "hybrid_engine",
         "load_universal_checkpoint",
         "memory_breakdown",
         "monitor_config",
         "nebula",
         "pipeline",
         "prescale_gradients",
         "progressive_layer_drop",
         "quantize_training",
         "seq_parallel_communication_data_type",
         "sparse_attention",
         "sparse_gradients",
         "steps_per_print",
         "tensor_parallel",
         "tensorboard",
         "timers",
         "torch_autocast",
         "use_data_before_expert_parallelism",
         "vocabulary_size",
         "wall_clock_breakdown",
         "wandb",
         "weight_quantization",
         "zero_allow_untested_optimizer",
         "zero_force_ds_cpu_optimizer"}}},
      {"zero_optimization",
       {{"stage", "offload_optimizer", "offload_param"},
        {"allgather_bucket_size",
         "allgather_partitions",
         "contiguous_gradients",
         "cpu_offload",
         "cpu_offload_param",
         "cpu_offload_params",
         "cpu_offload_use_pin_memory",
         "elastic_checkpoint",
         "find_unused_parameters",
         "gather_16bit_weights_on_model_save",
         "ignore_unused_parameters",
         "leaf_module",
         "legacy_stage1",
         "load_from_fp32_weights",
         "log_trace_cache_warnings",
         "max_live_parameters",
         "max_reuse_distance",
         "memory_efficient_linear",
         "mics_hierarchical_params_gather",
         "mics_shard_size",
         "model_persistence_threshold",
         "module_granularity_threshold",
         "overlap_comm",
         "override_module_apply",
         "param_persistence_threshold",
         "pipeline_loading_checkpoint",
         "prefetch_bucket_size",
         "reduce_bucket_size",
         "reduce_scatter",
         "round_robin_gradients",
         "stage3_gather_16bit_weights_on_model_save",
         "stage3_gather_fp16_weights_on_model_save",
         "stage3_max_live_parameters",
         "stage3_max_reuse_distance",
         "stage3_model_persistence_threshold",
         "stage3_module_granularity_threshold",
         "stage3_param_persistence_threshold",
         "stage3_prefetch_bucket_size",
         "stage3_use_all_reduce_for_fetch_params",
         "sub_group_size",
         "use_all_reduce_for_fetch_params",
         "use_multi_rank_bucket_allreduce",
         "zero_hpz_partition_size",
         "zero_quantized_gradients",
         "zero_quantized_nontrainable_weights",
         "zero_quantized_weights",
         "zeropp_loco_param"}}},
      {"zero_optimization/offload_optimizer",
       {{"device", "nvme_path"},
        {"buffer_count", "buffer_size", "cpuadam_cores_perc", "fast_init", "pin_memory", "pipeline",
         "pipeline_read", "pipeline_write", "ratio", "super_offload"}}},
      {"zero_optimization/offload_param",
       {{"device", "nvme_path"}, {"buffer_count", "buffer_size", "max_in_cpu", "pin_memory"}}},
      {"fp16",
       {{"enabled", "loss_scale", "loss_scale_window", "initial_scale_power", "hysteresis",
         "min_loss_scale"},
        {"auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads", "opt_level"}}},
      {"bf16",
       {{"enabled"},
        {"auto_cast", "bf16_master_weights_and_grads", "bf16_optimizer_states",
         "check_grad_overflow", "immediate_grad_update"}}},
      {"optimizer", {{"type", "params"}, {"legacy_fusion"}}},
      {"optimizer/params",
       {{"lr", "eps", "weight_decay", "betas"},
        {"adam_w_mode", "amsgrad", "bias_correction", "capturable", "comm_backend_name",
         "cuda_aware", "foreach", "fp32_optimizer_states", "freeze_step", "fused", "max_grad_norm",
         "maximize", "set_grad_none", "torch_adam"}}},
      {"scheduler", {{"type", "params"}, {}}},
      {"scheduler/params",
       {{"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps",
         "warmup_min_ratio", "cos_min_ratio"},
        {"last_batch_iteration"}}}};
  return all;
}

/// The section that a path names; nullptr for one whose keys are not told apart.
const Section* section_at(const std::string& path) {
  const auto found = sections().find(path == "bfloat16" ? "bf16" : path);
  return found == sections().end() ? nullptr : &found->second;
}

bool holds(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void meet_unknown(const std::string& key, const std::string& path, const Section& section) {
  Names known = section.honoured;
  known.insert(known.end(), section.ignored.begin(), section.ignored.end());
  if (const auto near = nearest_name(key, known)) {
    throw UsageError(tr("[deepspeed] {}: DeepSpeed has no such key", path),
                     tr("did you mean '{}'?", *near));
  }
  log::warning("--deepspeed: unknown key \"{}\" is ignored", path);
}

void look(const Json& json, const std::string& above, Names& ignored) {
  const Section& section = *section_at(above);
  for (const auto& [key, value] : json.items()) {
    const std::string path = above.empty() ? key : fmt::format("{}/{}", above, key);
    if (holds(section.ignored, key)) {
      ignored.push_back(path);
    } else if (!holds(section.honoured, key)) {
      meet_unknown(key, path, section);
    } else if (value.is_object() && section_at(path)) {
      look(value, path, ignored);
    }
  }
}

}  // namespace

std::vector<std::string> ignored_deepspeed_keys(const Json& json) {
  std::vector<std::string> ignored;
  look(json, "", ignored);
  return ignored;
}

}  // namespace danlu::settings
