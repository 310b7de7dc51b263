#include "settings/options/module_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/pattern.h"
#include "weights/lora/adapter_places.h"

namespace danlu::settings {
namespace {

using arch::last_name;

std::vector<std::string> last_names(const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(last_name(module));
  return {names.begin(), names.end()};
}

std::string nearest_hint(const std::string& word, const std::vector<std::string>& names,
                         std::string otherwise) {
  const auto near = nearest_name(last_name(word), names);
  if (!near) return otherwise;
  return tr("did you mean {}?", *near);
}

void check_lora_targets(const TrainConfig& config, const arch::ModelConfig& model) {
  const bool by_regex = config.given_as.count("target_regex") > 0;
  const std::string flag = config.flag(by_regex ? "target_regex" : "lora_target");
  const std::vector<std::string> idle = [&] {
    try {
      return weights::idle_targets(config.lora, model);
    } catch (const PatternError& error) {
      throw UsageError(tr("[lora] {}: {}", flag, error.what()), error.hint());
    }
  }();
  if (idle.empty()) return;
  const std::vector<std::string> names = last_names(weights::linear_modules(model));
  throw UsageError(tr("[lora] {}: target '{}' matches no linear layer; there are: {}", flag,
                      idle.front(), fmt::join(names, ", ")),
                   nearest_hint(idle.front(), names, tr("all-linear chooses every one of them")));
}

void check_saved_modules(const TrainConfig& config, const arch::ModelConfig& model) {
  std::vector<std::string> modules;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model))
    modules.push_back(arch::module_of(parameter.name));
  for (const std::string& wanted : config.lora.modules_to_save) {
    const bool found = std::any_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return weights::is_named(module, wanted);
    });
    if (found) continue;
    const std::vector<std::string> names = last_names(modules);
    throw UsageError(tr("[lora] {}: '{}' matches no module of the model; there are: {}",
                        config.flag("lora_modules_to_save"), wanted, fmt::join(names, ", ")),
                     nearest_hint(wanted, names, {}));
  }
}

}  // namespace

std::vector<std::string> layers_called(const std::string& word, const arch::ModelConfig& model) {
  using arch::Role;
  static const std::vector<Role> kQkv = {Role::kQ,   Role::kK,     Role::kV,
                                         Role::kQkv, Role::kQDown, Role::kKvDown};
  static const std::vector<Role> kFirst = {
      Role::kGate,           Role::kUp,      Role::kGateUp, Role::kExpertGate, Role::kExpertUp,
      Role::kSharedGateProj, Role::kSharedUp};
  static const std::vector<Role> kSecond = {Role::kDown, Role::kExpertDown, Role::kSharedDown};
  static const std::map<std::string, std::vector<Role>> kWords = {
      {"DEFAULT", kQkv},           {"AUTO", kQkv},
      {"linear_qkv", kQkv},        {"query_key_value", kQkv},
      {"linear_qb", {Role::kQ}},   {"linear_kvb", {Role::kKvUp}},
      {"linear_proj", {Role::kO}}, {"dense", {Role::kO}},
      {"linear_fc1", kFirst},      {"dense_h_to_4h", kFirst},
      {"linear_fc2", kSecond},     {"dense_4h_to_h", kSecond}};
  const auto roles = kWords.find(word);
  if (roles == kWords.end()) return {};
  // MindSpeed's linear_qkv of latent attention is what reads the hidden state.
  const bool leaves_q = roles->second == kQkv && model.latent && model.latent->q_rank > 0;
  std::vector<std::string> out;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model)) {
    const auto& wanted = roles->second;
    if (std::find(wanted.begin(), wanted.end(), parameter.role) == wanted.end()) continue;
    if (leaves_q && parameter.role == Role::kQ) continue;
    const std::string name = arch::last_name(arch::module_of(parameter.name));
    if (!parameter.is_bias && std::find(out.begin(), out.end(), name) == out.end())
      out.push_back(name);
  }
  return out;
}

void check_module_names(const TrainConfig& config, const arch::ModelConfig& model) {
  if (config.tuner == Tuner::kLora && config.model.adapter.empty()) {
    check_lora_targets(config, model);
    check_saved_modules(config, model);
  }
}

}  // namespace danlu::settings
