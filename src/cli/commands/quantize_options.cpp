#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> calibration_options() {
  const std::string group = "Calibration";
  return {{.name = "n_samples",
           .type = OptionType::kInt,
           .default_text = "256",
           .help = "rows that are drawn; their tokens follow each other",
           .aliases = {"quant_n_samples"},
           .range = at_least(1),
           .group = group},
          {.name = "max_length",
           .type = OptionType::kInt,
           .default_text = "2048",
           .help = "tokens of a sequence that the model reads",
           .range = at_least(1).up_to(1 << 24),
           .group = group},
          {.name = "batch_size",
           .type = OptionType::kInt,
           .default_text = "1",
           .help = "sequences of one pass",
           .aliases = {"quant_batch_size"},
           .range = at_least(1).up_to(1 << 16),
           .group = group},
          {.name = "seed",
           .type = OptionType::kInt,
           .default_text = "42",
           .help = "of the rows that are drawn",
           .range = at_least(0),
           .group = group},
          {.name = "damp_percent",
           .type = OptionType::kFloat,
           .default_text = "0.1",
           .help = "of the mean of a Hessian's diagonal, added to it: 0.1 is a tenth",
           .range = at_least(0).up_to(1),
           .group = group},
          {.name = "device",
           .default_text = "cpu",
           .help = "what the model computes on: cpu, cuda[:n]",
           .group = group},
          {.name = "compute_dtype",
           .help = "type to compute in (default: the model's)",
           .choices = {"fp32", "bf16", "fp16"},
           .group = group}};
}

}  // namespace

OptionTable quantize_options() {
  return OptionTable(
      "quantize", "Quantise a model's linear layers by calibration (GPTQ)",
      "danlu quantize --model DIR --samples DIR --output DIR [--bits 4] [--group_size 128]",
      joined({{{.name = "model",
                .help = "model directory",
                .aliases = {"model_name_or_path", "m"},
                .required = true},
               {.name = "samples",
                .help = "rows.jsonl of token ids, or its directory, as danlu sft --write_samples "
                        "makes it",
                .required = true},
               {.name = "output",
                .help = "directory to write",
                .aliases = {"o", "output_dir"},
                .required = true},
               {.name = "bits",
                .type = OptionType::kInt,
                .default_text = "4",
                .help = "of a number: 2, 3, 4 or 8",
                .aliases = {"quant_bits"},
                .range = at_least(2).up_to(8)},
               {.name = "group_size",
                .type = OptionType::kInt,
                .default_text = "128",
                .help = "columns that share a scale; -1: all of a row",
                .range = at_least(-1).up_to(1 << 20)},
               {.name = "desc_act",
                .type = OptionType::kBool,
                .default_text = "false",
                .help = "columns of larger inputs are rounded first"},
               {.name = "sym",
                .type = OptionType::kBool,
                .default_text = "true",
                .help = "numbers lie around zero; false: each group has a zero of its own"},
               {.name = "checkpoint_format",
                .default_text = "gptq",
                .help = "gptq_v2 stores zeros as they are, gptq less one",
                .choices = {"gptq", "gptq_v2"}},
               {.name = "max_shard_size",
                .default_text = "5GB",
                .help = "largest file, e.g. 5GB, 500MB"},
               {.name = "overwrite",
                .type = OptionType::kBool,
                .default_text = "false",
                .help = "replace an existing directory",
                .aliases = {"overwrite_output_dir"}}},
              calibration_options(),
              opened_model_options("Model")}));
}

}  // namespace danlu::cli
