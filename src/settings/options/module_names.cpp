#include "settings/options/module_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/pattern.h"
#include "weights/lora/peft.h"

namespace danlu::settings {
namespace module_names_detail {

using arch::Role;

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}
std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool is_linear(Role role) {
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kQkv:
    case Role::kO:
    case Role::kGate:
    case Role::kUp:
    case Role::kDown:
      return true;
    default:
      return false;
  }
}

weights::PeftConfig peft_of(const std::vector<std::string>& targets) {
  weights::PeftConfig peft;
  weights::set_targets(peft, targets);
  return peft;
}

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

void check_targets(const TrainConfig& config, const arch::ModelConfig& model) {
  const std::string flag = config.flag("lora_target");
  for (const std::string& target : config.lora.target_modules) {
    // As one of several a pattern is a name like any other.
    const std::vector<std::string> alone = {target};
    const bool broken = [&] {
      try {
        return chosen_modules(alone, model).empty();
      } catch (const PatternError& error) {
        throw UsageError(tr("[lora] {}: {}", flag, error.what()), error.hint());
      }
    }();
    if (!broken) continue;
    const std::vector<std::string> names = last_names(linear_modules(model));
    throw UsageError(tr("[lora] {}: target '{}' matches no linear layer; there are: {}", flag,
                        target, fmt::join(names, ", ")),
                     nearest_hint(target, names, tr("all-linear chooses every one of them")));
  }
}

void check_saved_modules(const TrainConfig& config, const arch::ModelConfig& model) {
  std::vector<std::string> modules;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model))
    modules.push_back(module_of(parameter.name));
  for (const std::string& wanted : config.lora.modules_to_save) {
    const bool found = std::any_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return module == wanted || module.ends_with("." + wanted);
    });
    if (found) continue;
    const std::vector<std::string> names = last_names(modules);
    throw UsageError(tr("[lora] {}: '{}' matches no module of the model; there are: {}",
                        config.flag("lora_modules_to_save"), wanted, fmt::join(names, ", ")),
                     nearest_hint(wanted, names, {}));
  }
}

void check_freeze(const TrainConfig& config, const arch::ModelConfig& model) {
  const std::vector<arch::ParamSpec> parameters = arch::parameters_of(model);
  for (const std::string& pattern : config.freeze) {
    const std::string flag = config.flag("freeze");
    try {
      const Pattern expression(pattern.substr(pattern.starts_with('!') ? 1 : 0));
      const bool found = std::any_of(
          parameters.begin(), parameters.end(),
          [&](const arch::ParamSpec& parameter) { return expression.is_found_in(parameter.name); });
      if (found) continue;
    } catch (const PatternError& error) {
      throw UsageError(tr("[freeze] {}: {}", flag, error.what()), error.hint());
    }
    throw UsageError(tr("[freeze] {} '{}' matches no parameter; names look like '{}', '{}'", flag,
                        pattern, parameters.front().name, parameters[parameters.size() / 2].name));
  }
}

}  // namespace module_names_detail

std::vector<std::string> linear_modules(const arch::ModelConfig& model) {
  std::vector<std::string> out;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model)) {
    if (module_names_detail::is_linear(parameter.role) && !parameter.is_bias)
      out.push_back(module_names_detail::module_of(parameter.name));
  }
  return out;
}

std::vector<std::string> layers_called(const std::string& word, const arch::ModelConfig& model) {
  using arch::Role;
  static const std::vector<Role> kQkv = {Role::kQ, Role::kK, Role::kV, Role::kQkv};
  static const std::vector<Role> kFirst = {Role::kGate, Role::kUp};
  static const std::map<std::string, std::vector<Role>> kWords = {{"DEFAULT", kQkv},
                                                                  {"AUTO", kQkv},
                                                                  {"linear_qkv", kQkv},
                                                                  {"query_key_value", kQkv},
                                                                  {"linear_proj", {Role::kO}},
                                                                  {"dense", {Role::kO}},
                                                                  {"linear_fc1", kFirst},
                                                                  {"dense_h_to_4h", kFirst},
                                                                  {"linear_fc2", {Role::kDown}},
                                                                  {"dense_4h_to_h", {Role::kDown}}};
  const auto roles = kWords.find(word);
  if (roles == kWords.end()) return {};
  std::vector<std::string> out;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model)) {
    const auto& wanted = roles->second;
    if (std::find(wanted.begin(), wanted.end(), parameter.role) == wanted.end()) continue;
    if (!parameter.is_bias && parameter.layer == 0)
      out.push_back(module_names_detail::last_name(module_names_detail::module_of(parameter.name)));
  }
  return out;
}

std::vector<std::string> chosen_modules(const std::vector<std::string>& targets,
                                        const arch::ModelConfig& model) {
  using namespace module_names_detail;
  const weights::PeftConfig peft = peft_of(targets);
  std::vector<std::string> out;
  for (const arch::ParamSpec& parameter : arch::parameters_of(model)) {
    const bool head = parameter.role == arch::Role::kHead;
    // The embedding is no layer an adapter sits on, but naming it deserves the error that says so.
    const bool embedding = parameter.role == arch::Role::kEmbedding;
    if (parameter.is_bias || !(head || embedding || is_linear(parameter.role))) continue;
    const std::string module = module_of(parameter.name);
    if (weights::peft_targets(peft, module, !embedding, head)) out.push_back(module);
  }
  return out;
}

void check_module_names(const TrainConfig& config, const arch::ModelConfig& model) {
  using namespace module_names_detail;
  if (config.tuner == Tuner::kLora && config.model.adapter.empty()) {
    check_targets(config, model);
    check_saved_modules(config, model);
  }
  check_freeze(config, model);
}

}  // namespace danlu::settings
