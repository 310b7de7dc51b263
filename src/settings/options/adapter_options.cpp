#include "settings/options/adapter_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "settings/options/module_names.h"

namespace danlu::settings {
namespace {

/// Targets by the names of this model; other systems' words for several layers are translated.
std::vector<std::string> lora_targets_from(const Options& options, const arch::ModelConfig& model) {
  std::vector<std::string> targets, translated_words;
  for (const std::string& target : options.get_list("lora_target")) {
    const bool all = target == "ALL" || target == "all" || target == "all_linear";
    const std::vector<std::string> layers = layers_called(target, model);
    if (layers.empty()) {
      targets.push_back(all ? "all-linear" : target);
      continue;
    }
    translated_words.push_back(fmt::format("{} ({})", target, fmt::join(layers, ", ")));
    targets.insert(targets.end(), layers.begin(), layers.end());
  }
  if (!translated_words.empty())
    log::info("{}: {}", options.given_as("lora_target"), fmt::join(translated_words, ", "));
  return targets;
}

}  // namespace

weights::PeftConfig lora_from(const Options& options, const arch::ModelConfig& model) {
  weights::PeftConfig lora;
  lora.rank = options.get_int("lora_rank");
  lora.alpha = options.get_float("lora_alpha");
  lora.dropout = options.get_float("lora_dropout");
  lora.rslora = options.get_bool("use_rslora");
  lora.dora = options.get_bool("use_dora");
  weights::set_targets(lora, lora_targets_from(options, model));
  lora.modules_to_save = options.get_list("lora_modules_to_save");
  return lora;
}

}  // namespace danlu::settings
