#include "weights/lora/adapter_places.h"

#include <algorithm>
#include <string_view>

#include "arch/learned_positions.h"
#include "base/message.h"

namespace danlu::weights {

using arch::ParamSpec;
using arch::Role;

namespace {

constexpr std::string_view kWholeTower = R"((model\.)?visual\..*)";

bool is_in_tower(const std::string& module) { return module.starts_with("visual."); }

}  // namespace

std::map<std::string, ParamSpec> module_weights(const arch::ModelConfig& config) {
  std::map<std::string, ParamSpec> weights;
  for (ParamSpec& spec : arch::parameters_of(config)) {
    if (!spec.is_bias) weights.emplace(arch::module_of(spec.name), std::move(spec));
  }
  return weights;
}

bool is_chosen(const PeftConfig& peft, const ParamSpec& weight) {
  return peft_targets(peft, arch::module_of(weight.name), !arch::is_table(weight),
                      weight.role == Role::kHead);
}

bool must_be_adapted(const PeftConfig& peft, const ParamSpec& weight) {
  return !weight.is_bias && weight.shape.size() == 2 && weight.role != Role::kRouter &&
         weight.role != Role::kSharedExpertGate && weight.role != Role::kScore &&
         weight.role != Role::kScoreDense && is_chosen(peft, weight);
}

std::vector<std::string> chosen_modules(const PeftConfig& peft, const arch::ModelConfig& config) {
  std::vector<std::string> modules;
  for (const ParamSpec& spec : arch::parameters_of(config)) {
    if (must_be_adapted(peft, spec)) modules.push_back(arch::module_of(spec.name));
  }
  return modules;
}

std::vector<std::string> linear_modules(const arch::ModelConfig& config) {
  PeftConfig every;
  set_targets(every, {"all-linear"});
  return chosen_modules(every, config);
}

void keep_out_of_tower(PeftConfig& peft, const arch::ModelConfig& config) {
  if (!config.vision || peft.target_modules.empty() || !peft.exclude_modules.empty()) return;
  const bool all_linear = peft.target_modules.front() == "all-linear";
  if (peft.targets_are_pattern && !all_linear) return;
  if (all_linear) {
    peft.exclude_modules = {std::string(kWholeTower)};
    peft.excludes_are_pattern = true;
    return;
  }
  // Names that reach into both.
  PeftConfig shared = peft;
  std::erase_if(shared.target_modules, [&](const std::string& target) {
    PeftConfig alone;
    alone.target_modules = {target};
    const std::vector<std::string> chosen = chosen_modules(alone, config);
    return std::all_of(chosen.begin(), chosen.end(), is_in_tower);
  });
  PeftConfig asked = peft;
  std::erase_if(asked.target_modules, [&](const std::string& target) {
    return std::count(shared.target_modules.begin(), shared.target_modules.end(), target) > 0;
  });
  const std::vector<std::string> wanted = chosen_modules(asked, config);
  for (const std::string& module : chosen_modules(shared, config)) {
    if (is_in_tower(module) && std::count(wanted.begin(), wanted.end(), module) == 0)
      peft.exclude_modules.push_back(module);
  }
  if (peft.exclude_modules.empty() || !wanted.empty()) return;
  peft.exclude_modules = {std::string(kWholeTower)};
  peft.excludes_are_pattern = true;
}

bool has_tower_adapters(const TensorSource& adapter) {
  return std::any_of(
      adapter.tensors().begin(), adapter.tensors().end(), [](const TensorInfo& info) {
        const auto name = parse_adapter_name(info.name);
        const bool is_whole =
            name && (name->part == AdapterPart::kSavedModule || name->part == AdapterPart::kBias);
        return name && !is_whole && is_in_tower(name->module);
      });
}

std::vector<std::string> idle_targets(const PeftConfig& peft, const arch::ModelConfig& config) {
  std::vector<std::string> idle;
  PeftConfig alone;
  alone.targets_are_pattern = peft.targets_are_pattern;
  for (const std::string& target : peft.target_modules) {
    alone.target_modules = {target};
    if (chosen_modules(alone, config).empty()) idle.push_back(target);
  }
  return idle;
}

AdapterLimits limits_at(const PeftConfig& peft, const arch::ModelConfig& config,
                        const ParamSpec& weight) {
  if (arch::is_table(weight)) {
    return {peft.dora ? "is of DoRA on an embedding, which is not supported" : "", "an embedding"};
  }
  if (weight.role != Role::kHead) return {};
  AdapterLimits limits;
  if (config.norm_head)
    limits.merging = "is on a head with normalised rows, which cannot be adapted";
  if (!weight.tied_to.empty()) {
    limits.computing = "a head tied to the embedding";
  } else if (config.norm_head) {
    limits.computing = "a head with normalised rows";
  } else if (peft.dora) {
    limits.computing = "the head with DoRA";
  }
  return limits;
}

std::vector<int64_t> adapter_shape(const ParamSpec& weight, AdapterPart part, int64_t rank) {
  if (part == AdapterPart::kSavedModule) return weight.shape;
  if (weight.shape.size() != 2) return {};
  const bool embedding = arch::is_table(weight);
  const int64_t out = weight.shape[embedding ? 1 : 0], in = weight.shape[embedding ? 0 : 1];
  if (part == (embedding ? AdapterPart::kEmbeddingA : AdapterPart::kLoraA)) return {rank, in};
  if (part == (embedding ? AdapterPart::kEmbeddingB : AdapterPart::kLoraB)) return {out, rank};
  if (part == AdapterPart::kMagnitude) return {out};
  return {};
}

bool is_within(const std::string& module, const std::string& entry) {
  return ("." + module + ".").find("." + entry + ".") != std::string::npos;
}

std::string base_module(const AdapterTensorName& name) {
  constexpr std::string_view kBaseLayer = ".base_layer";
  const bool is_whole = name.part == AdapterPart::kSavedModule || name.part == AdapterPart::kBias;
  if (!is_whole || !name.module.ends_with(kBaseLayer)) return name.module;
  return name.module.substr(0, name.module.size() - kBaseLayer.size());
}

}  // namespace danlu::weights
