#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable compare_options() {
  return OptionTable(
      "compare", "Compare two evaluations item by item: what changed, and whether that is chance",
      "danlu compare RUN_A RUN_B [--show N] [--output FILE.json] [--plot FILE.svg]",
      {{.name = "run_a",
        .help = "a results_*.json of danlu eval or lm-eval with its samples beside it, or a "
                "directory, of which the newest counts (or the first word)",
        .word = 1},
       {.name = "run_b", .help = "what to compare it with (or the second word)", .word = 2},
       {.name = "show",
        .type = OptionType::kInt,
        .default_text = "10",
        .help = "changed items to print (0 = all)",
        .range = at_least(0)},
       {.name = "output",
        .help = "write everything as JSON to this file, with every changed item",
        .aliases = {"output_path", "o"}},
       {.name = "plot", .help = "draw groups as bars with their errors: FILE.svg or FILE.png"}});
}

}  // namespace danlu::cli
