// What of the activations is not kept for backward.
#include "cli/commands/train_options.h"

namespace danlu::cli {

std::vector<OptionSpec> train_recompute_options() {
  const std::string precision = "Precision and memory";
  return {
      {.name = "recompute",
       .default_text = "none",
       .help = "activations computed again in backward; auto: as little as fits into memory",
       .aliases = {"recompute_granularity"},
       .choices = {"none", "selective", "full", "auto"},
       .group = precision},
      {.name = "recompute_method",
       .help = "full: uniform runs groups of layers again, block the first layers of a stage alone",
       .choices = {"uniform", "block"},
       .group = precision},
      {.name = "recompute_num_layers",
       .type = OptionType::kInt,
       .help = "layers of a group (uniform, default 1) or of each virtual stage (block)",
       .range = at_least(1),
       .group = precision},
      {.name = "recompute_activation_function",
       .type = OptionType::kBool,
       .help = "layers that --recompute leaves: the gated activation's output is not kept",
       .group = precision},
      {.name = "recompute_activation_function_num_layers",
       .type = OptionType::kInt,
       .help = "of each virtual stage so many; default: all that are left",
       .range = at_least(1),
       .group = precision},
      {.name = "recompute_norm",
       .type = OptionType::kBool,
       .help = "layers that --recompute leaves: the outputs of norms are not kept",
       .group = precision},
      {.name = "recompute_norm_num_layers",
       .type = OptionType::kInt,
       .help = "of each virtual stage so many; default: all that are left",
       .range = at_least(1),
       .group = precision},
      {.name = "gradient_checkpointing",
       .type = OptionType::kBool,
       .help = "same as --recompute full",
       .group = precision},
      {.name = "disable_gradient_checkpointing",
       .type = OptionType::kBool,
       .help = "LLaMA-Factory's name of --recompute none",
       .group = precision},
      {.name = "recompute_activations",
       .type = OptionType::kBool,
       .help = "Megatron's name of --recompute selective",
       .group = precision},
      {.name = "activation_offload",
       .default_text = "none",
       .help = "what layers keep for backward is meanwhile in host memory (host; devices) or in a "
               "file of --offload_dir (file)",
       .choices = {"none", "host", "file"},
       .group = precision},
      {.name = "activation_offload_num_layers",
       .type = OptionType::kInt,
       .help = "layers of each virtual stage, from its first; default: all",
       .range = at_least(1),
       .group = precision},
      {.name = "activation_offload_modules",
       .type = OptionType::kList,
       .help = "parts of a layer: input_norm, self_attention, post_attention_norm, mlp; default: "
               "all",
       .aliases = {"swap_modules"},
       .group = precision},
      {.name = "swap_attention",
       .type = OptionType::kBool,
       .help = "MindSpeed's: --activation_offload host of input_norm, self_attention and "
               "post_attention_norm",
       .group = precision},
  };
}

}  // namespace danlu::cli
