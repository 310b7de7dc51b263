// cli/commands/row_options.h: flags of every verb that reads the rows of data sets.
#pragma once
#include <string>

#include "base/options.h"

namespace danlu::cli {

/// --max_dropped_ratio: see data::judge_dropped.
inline OptionSpec max_dropped_ratio_option(const std::string& group) {
  return {.name = "max_dropped_ratio",
          .type = OptionType::kFloat,
          .default_text = "0.5",
          .help = "it is an error if more than this share of a data set's rows cannot be used",
          .range = at_least(0).up_to(1),
          .group = group};
}

}  // namespace danlu::cli
