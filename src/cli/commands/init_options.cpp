#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable init_options() {
  return OptionTable("init", "Make a randomly initialised model from a config.json",
                     "danlu init --config config.json --seed N --output DIR [--tokenizer DIR]",
                     {{.name = "config",
                       .help = "config.json, or a directory with one",
                       .aliases = {"config_name"},
                       .required = true},
                      {.name = "output",
                       .help = "directory to write",
                       .aliases = {"o", "output_dir"},
                       .required = true},
                      {.name = "seed",
                       .type = OptionType::kInt,
                       .default_text = "42",
                       .help = "equal seeds give equal weights",
                       .range = at_least(0)},
                      {.name = "dtype",
                       .help = "type to store (default: the config's torch_dtype)",
                       .aliases = {"torch_dtype"},
                       .choices = {"fp32", "bf16", "fp16"}},
                      {.name = "tokenizer",
                       .help = "directory whose tokenizer files are copied beside the weights",
                       .aliases = {"tokenizer_name_or_path"}},
                      {.name = "overwrite",
                       .type = OptionType::kBool,
                       .default_text = "false",
                       .help = "replace an existing directory",
                       .aliases = {"overwrite_output_dir"}}});
}

}  // namespace danlu::cli
