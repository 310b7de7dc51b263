// `danlu convert-rows llava`: LLaVA's instruction rows as MindSpeed-MM reads them.
#include <fmt/format.h>

#include <cstdio>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/commands/row_options.h"
#include "data/llava_rows.h"

namespace danlu::cli {

OptionTable convert_rows_options() {
  const std::string group = "Rows";
  return OptionTable(
      "convert-rows", "write rows of pictures in another layout",
      "danlu convert-rows llava [--input FILE] [--image_dir DIR] [--output FILE]",
      {
          {.name = "input",
           .default_text = "./data/llava_instruct_150k.json",
           .help = "rows of LLaVA: image, conversations of {from, value}",
           .aliases = {"i", "dataset"},
           .group = group},
          {.name = "image_dir",
           .default_text = "./data/COCO2017/train2017",
           .help = "where the pictures lie; written in front of their names",
           .aliases = {"image_folder", "media_dir"},
           .group = group},
          {.name = "output",
           .default_text = "./data/mllm_format_llava_instruct_data.json",
           .help = "a JSON list of {images, messages}; what exists is never replaced",
           .aliases = {"o"},
           .group = group},
          {.name = "strict",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "a missing picture is an error, instead of a dropped and counted row",
           .group = group},
          max_dropped_ratio_option(group),
      });
}

int run_convert_rows(const Options& options) {
  watch_interrupts();
  data::LlavaRowsSpec spec;
  spec.input = options.get_string("input");
  spec.image_dir = options.get_string("image_dir");
  spec.output = options.get_string("output");
  spec.strict = options.get_bool("strict");
  spec.max_dropped_ratio = options.get_float("max_dropped_ratio");
  const data::PreprocessReport report = data::convert_llava_rows(spec);
  std::fputs(report.rows_text().c_str(), stdout);
  std::fputs(fmt::format("written   {}\n", spec.output.string()).c_str(), stdout);
  return 0;
}

}  // namespace danlu::cli
