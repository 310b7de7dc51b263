#include "settings/options/recompute.h"

namespace danlu::settings {
namespace recompute_options_detail {

std::optional<int64_t> number(const Options& options, const std::string& name) {
  if (!options.has_value(name)) return std::nullopt;
  return options.get_int(name);
}

}  // namespace recompute_options_detail

RecomputeFlags recompute_from(const Options& options) {
  using recompute_options_detail::number;
  RecomputeFlags flags;
  flags.granularity = options.get_string("recompute");
  if (options.has_value("gradient_checkpointing") && !options.is_given("recompute"))
    flags.granularity = options.get_bool("gradient_checkpointing") ? "full" : "none";
  flags.method = options.get_string_or("recompute_method", "");
  flags.num_layers = number(options, "recompute_num_layers");
  flags.activation_function = options.get_bool_or("recompute_activation_function", false);
  flags.activation_function_num_layers =
      number(options, "recompute_activation_function_num_layers");
  flags.norm = options.get_bool_or("recompute_norm", false);
  flags.norm_num_layers = number(options, "recompute_norm_num_layers");
  recompute_groups(flags, 0);  // the rules between them
  return flags;
}

}  // namespace danlu::settings
