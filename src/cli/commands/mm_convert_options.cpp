// The flags of `danlu mm-convert`: MindSpeed-MM's converter.
#include "cli/commands/commands.h"
#include "cli/commands/convert_plan.h"
#include "cli/commands/mm_flags.h"

namespace danlu::cli {
namespace {

OptionSpec path_option(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .group = "Places"};
}

/// The three keys of a parallel_config; `of` is what it is of, for help.
std::vector<OptionSpec> parallel_options(const std::string& prefix, const std::string& group) {
  return {{.name = prefix + ".llm_pp_layers",
           .type = OptionType::kList,
           .help = "decoder layers of each stage: [1,10,10,7]; of each chunk: [[0,4],[4,3]]",
           .group = group},
          {.name = prefix + ".vit_pp_layers",
           .type = OptionType::kList,
           .help = "blocks of the vision tower, likewise: [32,0,0,0]",
           .group = group},
          {.name = prefix + ".tp_size",
           .type = OptionType::kInt,
           .default_text = "1",
           .help = "tensor parallel size",
           .range = at_least(1).up_to(4096),
           .group = group}};
}

}  // namespace

OptionTable mm_convert_options() {
  std::vector<OptionSpec> all = {
      {.name = "converter",
       .help = "whose converter (or the first word): the model's",
       .choices = {"Qwen2VLConverter", "Qwen2_5_VLConverter"},
       .group = "What",
       .word = 1},
      {.name = "action",
       .help = "what it does (or the second word)",
       .choices = {"hf_to_mm", "mm_to_hf", "resplit"},
       .group = "What",
       .word = 2},
      path_option("cfg.mm_dir", "MindSpeed-MM checkpoint: written by hf_to_mm, read by mm_to_hf"),
      path_option("cfg.hf_config.hf_dir", "Hugging Face directory of the model"),
      path_option("cfg.save_hf_dir", "where mm_to_hf writes"),
      path_option("cfg.source_dir", "resplit: checkpoint to cut again"),
      path_option("cfg.target_dir", "resplit: where to write")};
  for (const auto& [prefix, group] :
       {std::pair{kMmParallel, "Split (of mm_dir)"}, std::pair{kMmSource, "Split of source_dir"},
        std::pair{kMmTarget, "Split of target_dir"}}) {
    for (OptionSpec& spec : parallel_options(prefix, group)) all.push_back(std::move(spec));
  }
  for (OptionSpec& spec : conversion_run_options()) all.push_back(std::move(spec));
  return OptionTable("mm-convert",
                     "Convert Qwen2-VL and Qwen2.5-VL between Hugging Face and MindSpeed-MM, with\n"
                     "MindSpeed-MM's flags: streamed and checked",
                     "danlu mm-convert CONVERTER hf_to_mm|mm_to_hf|resplit --cfg.mm_dir DIR …",
                     std::move(all));
}

}  // namespace danlu::cli
