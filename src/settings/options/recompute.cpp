#include "settings/options/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "settings/options/idle_flags.h"

namespace danlu::settings {
namespace {

std::optional<int64_t> number(const Options& options, const std::string& name) {
  if (!options.has_value(name)) return std::nullopt;
  return options.get_int(name);
}

/// Errors: UsageError where the line asks for what this switches off.
void require_no_other(const Options& options) {
  constexpr const char* kOff = "disable_gradient_checkpointing";
  if (!options.get_bool_or(kOff, false)) return;
  const auto refuse = [&](const std::string& other) {
    throw UsageError(tr("[train] {} means --recompute none, beside {}; give one",
                        options.given_as(kOff), other));
  };
  for (const char* flag : {"gradient_checkpointing", "recompute_activations"})
    if (options.is_given(flag) && options.get_bool(flag)) refuse(options.given_as(flag));
  if (options.is_given("recompute") && options.get_string("recompute") != "none")
    refuse(options.given_as("recompute") + " " + options.get_string("recompute"));
}

/// Under HF's, LLaMA-Factory's and Megatron's names, where --recompute says nothing.
std::optional<std::string> granularity_by_other_names(const Options& options) {
  require_no_other(options);
  if (options.get_bool_or("disable_gradient_checkpointing", false)) return "none";
  const bool full = options.get_bool_or("gradient_checkpointing", false),
             selective = options.get_bool_or("recompute_activations", false);
  if (full && selective) {
    throw UsageError(
        tr("[train] {} means --recompute full, {} means --recompute selective; "
           "give one",
           options.given_as("gradient_checkpointing"), options.given_as("recompute_activations")));
  }
  // In Megatron-LM it outweighs --recompute-granularity; what they disagree about is refused here.
  if (selective && options.is_given("recompute") &&
      options.get_string("recompute") != "selective") {
    throw UsageError(tr("[train] {} means --recompute selective, and {} is {}; give one",
                        options.given_as("recompute_activations"), options.given_as("recompute"),
                        options.get_string("recompute")));
  }
  if (full) return "full";
  if (selective) return "selective";
  const bool is_off =
      options.has_value("gradient_checkpointing") || options.has_value("recompute_activations");
  return is_off ? std::optional<std::string>("none") : std::nullopt;
}

OffloadTo offload_to(const std::string& name) {
  if (name == "host") return OffloadTo::kHost;
  return name == "file" ? OffloadTo::kFile : OffloadTo::kNone;
}

void put_modules(const Options& options, ActivationOffload& flags) {
  const std::vector<std::string> given = options.get_list("activation_offload_modules");
  if (given.empty()) {
    if (options.get_bool_or("swap_attention", false)) flags.mlp = false;
    return;
  }
  flags.input_norm = flags.self_attention = flags.post_attention_norm = flags.mlp = false;
  for (const std::string& name : given) {
    bool* const part = name == "input_norm"            ? &flags.input_norm
                       : name == "self_attention"      ? &flags.self_attention
                       : name == "post_attention_norm" ? &flags.post_attention_norm
                       : name == "mlp"                 ? &flags.mlp
                                                       : nullptr;
    if (!part) {
      throw UsageError(
          tr("[train] {} {}: a layer has input_norm, self_attention, "
             "post_attention_norm and mlp",
             options.given_as("activation_offload_modules"), name));
    }
    *part = true;
  }
}

}  // namespace

RecomputeFlags recompute_from(const Options& options) {
  RecomputeFlags flags;
  flags.granularity = options.get_string("recompute");
  const auto other = granularity_by_other_names(options);
  if (other && !options.is_given("recompute")) flags.granularity = *other;
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

void report_more_layers(const Options& options, int64_t layers) {
  std::vector<std::string> more;
  for (const char* name : {"recompute_num_layers", "recompute_activation_function_num_layers",
                           "recompute_norm_num_layers", "activation_offload_num_layers"}) {
    if (options.is_given(name) && options.get_int(name) > layers)
      more.push_back(fmt::format("{} {}", options.given_as(name), options.get_int(name)));
  }
  if (more.empty()) return;
  say_always(tr("{}: no stage has more than {} layers, so it means all of them",
                fmt::join(more, ", "), layers));
}

ActivationOffload activation_offload_from(const Options& options) {
  ActivationOffload flags;
  const bool swaps = options.get_bool_or("swap_attention", false);
  const std::string to = options.get_string("activation_offload");
  flags.to = swaps && !options.is_given("activation_offload") ? OffloadTo::kHost : offload_to(to);
  if (swaps && flags.to == OffloadTo::kNone) {
    throw UsageError(tr("[train] {} beside {} {}; give one", options.given_as("swap_attention"),
                        options.given_as("activation_offload"), to));
  }
  flags.num_layers = number(options, "activation_offload_num_layers");
  put_modules(options, flags);
  return flags;
}

}  // namespace danlu::settings
