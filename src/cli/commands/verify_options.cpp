#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"

namespace danlu::cli {

OptionTable verify_options() {
  return OptionTable(
      "verify", "Compare a model with tensors that another implementation dumped",
      "danlu verify MODEL --golden FILE.safetensors [--adapters DIR] [--tolerance X]",
      joined(
          {{{.name = "model",
             .help = "HF or Megatron directory, or a GGUF file (or the first word)",
             .aliases = {"m"},
             .group = "Model",
             .word = 1},
            {.name = "golden",
             .help = "safetensors file with input_ids and any of logits, loss, grad.<name>, "
                     "hidden_states.<k>, "
                     "long_input_ids + long_logits, gen_prompt_ids + gen_output_ids "
                     "(or the second word)",
             .group = "Model",
             .word = 2,
             .required = true},
            {.name = "adapters",
             .help =
                 "PEFT adapter directory; some that no model computes with (bias, on embeddings) "
                 "danlu convert --adapters merges",
             .aliases = {"adapter_name_or_path"},
             .group = "Model"},
            {.name = "dtype",
             .default_text = "fp32",
             .help = "type to compute in",
             .aliases = {"torch_dtype"},
             .choices = {"fp32", "bf16", "fp16", "fp64"},
             .group = "Model"},
            {.name = "device",
             .default_text = "cpu",
             .help = "cpu, cuda[:n], npu[:n]",
             .group = "Model"},
            {.name = "tolerance",
             .type = OptionType::kFloat,
             .help =
                 "largest difference allowed: absolute for logits, hidden states and loss; "
                 "gradients "
                 "relative to the tensor's largest element (default 1e-4, for bf16 and fp16 0.1)",
             .range = at_least(0),
             .group = "Check"},
            {.name = "rows",
             .type = OptionType::kInt,
             .default_text = "20",
             .help = "differences to print, worst first (0 = all)",
             .range = at_least(0),
             .group = "Check"}},
           opened_model_options("Model")}));
}

}  // namespace danlu::cli
