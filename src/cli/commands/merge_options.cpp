#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"

namespace danlu::cli {

OptionTable merge_options() {
  return OptionTable(
      "merge", "Merge LoRA adapters into their base model, checked",
      "danlu merge --model DIR --adapters DIR --output DIR [--tolerance X]",
      joined({{{.name = "model",
                .help = "base model directory (default: what adapter_config.json names)",
                .aliases = {"model_name_or_path", "base_model", "m"}},
               {.name = "adapters",
                .help =
                    "PEFT adapter directory, or a MindSpeed LoRA; some that no model computes with "
                    "(bias, on embeddings) danlu convert --adapters merges",
                .aliases = {"adapter_name_or_path", "ckpt_dir", "adapter", "lora_load"},
                .required = true},
               {.name = "output",
                .help = "directory to write (default: <adapters>-merged)",
                .aliases = {"o", "output_dir", "export_dir"}},
               {.name = "dtype",
                .help = "type to store (default: the base model's)",
                .aliases = {"torch_dtype"},
                .choices = {"fp32", "bf16", "fp16", "float32", "bfloat16", "float16"}},
               {.name = "max_shard_size",
                .default_text = "5GB",
                .help = "largest file, e.g. 5GB, 500MB"},
               {.name = "quantization_bit",
                .type = OptionType::kInt,
                .default_text = "0",
                .help = "4: the adapters were trained on the base in NF4, as --quantization_bit 4 "
                        "trains them; it is quantised, dequantised and merged"},
               {.name = "double_quantization",
                .type = OptionType::kBool,
                .default_text = "true",
                .help = "as the training had it",
                .aliases = {"bnb_4bit_use_double_quant"}},
               {.name = "tolerance",
                .type = OptionType::kFloat,
                .default_text = "1e-4",
                .help = "largest logit difference, merged against adapted, over the largest "
                        "logit (both in fp32)",
                .range = at_least(0)},
               {.name = "overwrite",
                .type = OptionType::kBool,
                .default_text = "false",
                .help = "replace an existing directory",
                .aliases = {"overwrite_output_dir"}}},
              opened_model_options("")}));
}

}  // namespace danlu::cli
