#include "settings/options/adapter_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "settings/options/module_names.h"
#include "weights/lora/adapter_places.h"

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

bool names_all_layers(const std::vector<std::string>& targets) {
  return std::find(targets.begin(), targets.end(), "all-linear") != targets.end();
}

/// The layers of parts of the tower that are trained, as far as a target names them.
std::vector<std::string> tower_targets(const std::vector<std::string>& targets,
                                       const VisionTraining& vision) {
  if (names_all_layers(targets)) return vision.lora_targets;
  std::vector<std::string> named;
  for (const std::string& module : vision.lora_targets) {
    if (std::any_of(targets.begin(), targets.end(),
                    [&](const std::string& target) { return weights::is_named(module, target); }))
      named.push_back(module);
  }
  return named;
}

/// "all-linear" is spelled out, so that layers of the tower can stand beside it.
std::vector<std::string> with_tower(const std::vector<std::string>& targets,
                                    const std::vector<std::string>& of_tower,
                                    const VisionTraining& vision, const arch::ModelConfig& model) {
  std::vector<std::string> all;
  for (const std::string& target : targets) {
    if (!vision.adapts_decoder) break;
    if (target != "all-linear") {
      all.push_back(target);
      continue;
    }
    for (const arch::ParamSpec& spec : arch::parameters_of(model)) {
      if (spec.layer == 0 && spec.shape.size() == 2)
        all.push_back(arch::last_name(arch::module_of(spec.name)));
    }
  }
  all.insert(all.end(), of_tower.begin(), of_tower.end());
  return all;
}

/// --modules_to_save with ms-swift's and Megatron's words for the table and the head. A head that
/// is the table has no name of its own then.
std::vector<std::string> saved_modules_from(const Options& options,
                                            const arch::ModelConfig& model) {
  const std::map<std::string, arch::Role> kWords = {{"all-embedding", arch::Role::kEmbedding},
                                                    {"word_embeddings", arch::Role::kEmbedding},
                                                    {"output_layer", arch::Role::kHead}};
  std::vector<std::string> modules;
  for (const std::string& entry : options.get_list("lora_modules_to_save")) {
    const auto word = kWords.find(entry);
    std::string module = entry;
    for (const arch::ParamSpec& spec : arch::parameters_of(model)) {
      if (word == kWords.end()) break;
      const std::string named = arch::module_of(spec.name);
      if (weights::is_named(named, entry)) {  // the model's own name
        module = entry;
        break;
      }
      if (spec.role != word->second || spec.is_bias || spec.layer >= 0) continue;
      module = arch::last_name(arch::module_of(spec.tied_to.empty() ? spec.name : spec.tied_to));
    }
    if (std::find(modules.begin(), modules.end(), module) == modules.end())
      modules.push_back(module);
  }
  return modules;
}

weights::AdapterStart start_from(const Options& options) {
  const weights::AdapterStart start =
      weights::AdapterStart::named(options.get_string("init_weights"));
  if (!options.get_bool("pissa_init")) return start;
  const int64_t iterations = std::max<int64_t>(0, options.get_int("pissa_iter"));
  const weights::AdapterStart pissa{weights::AdapterStart::Kind::kPissa, iterations};
  if (options.is_given("init_weights") && start.name() != pissa.name()) {
    throw UsageError(tr("[train] {} means {}, {} means {}; give one",
                        options.given_as("init_weights"), start.name(),
                        options.given_as("pissa_init"), pissa.name()));
  }
  return pissa;
}

}  // namespace

weights::PeftConfig lora_from(const Options& options, Tuner tuner, const arch::ModelConfig& model,
                              const VisionTraining& vision) {
  weights::PeftConfig lora;
  lora.rank = options.get_int("lora_rank");
  lora.alpha = options.get_float("lora_alpha");
  lora.dropout = options.get_float("lora_dropout");
  lora.rslora = options.get_bool("use_rslora");
  lora.dora = options.get_bool("use_dora");
  lora.start = start_from(options);
  const bool by_regex = options.has_value("target_regex");
  std::vector<std::string> targets =
      by_regex ? std::vector<std::string>{options.get_string("target_regex")}
               : lora_targets_from(options, model);
  if (!vision.lora_targets.empty() && !by_regex) {
    const std::vector<std::string> of_tower = tower_targets(targets, vision);
    if (tuner == Tuner::kLora) {
      of_tower.empty()
          ? log::info(
                "no adapters on the vision tower: {} names none of its {} linear layers "
                "that are trained",
                options.given_as("lora_target"), vision.lora_targets.size())
          : log::info("adapters on the vision tower too: {} linear layers there", of_tower.size());
    }
    targets = with_tower(targets, of_tower, vision, model);
  }
  weights::set_targets(lora, targets);
  lora.targets_are_pattern |= by_regex;
  weights::keep_out_of_tower(lora, model);
  lora.modules_to_save = saved_modules_from(options, model);
  lora.modules_to_save.insert(lora.modules_to_save.end(), vision.whole_modules.begin(),
                              vision.whole_modules.end());
  if (!model.score) return lora;
  // The head is trained whole, and goes with the adapters.
  std::vector<std::string> parts = {model.score->module()};
  if (model.encoder) parts.insert(parts.begin(), model.encoder->dense);
  for (const std::string& head : parts) {
    if (std::find(lora.modules_to_save.begin(), lora.modules_to_save.end(), head) ==
        lora.modules_to_save.end())
      lora.modules_to_save.push_back(head);
  }
  if (model.score->is_described())
    lora.task_type = model.score->form == arch::ScoreForm::kTokens ? "TOKEN_CLS" : "SEQ_CLS";
  return lora;
}

}  // namespace danlu::settings
