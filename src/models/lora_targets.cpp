#include "models/lora_targets.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "base/error.h"

namespace danlu::models {
namespace lora_targets_detail {

bool is_plain_name(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
}

std::regex compiled(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw UsageError("[lora] '" + pattern + "' is not a regular expression: " + error.what());
  }
}

bool ends_with_name(const std::string& module, const std::string& name) {
  if (module == name) return true;
  return module.size() > name.size() && module[module.size() - name.size() - 1] == '.' &&
         module.compare(module.size() - name.size(), name.size(), name) == 0;
}

/// Layer index in a path like "model.layers.3.mlp", or -1.
int64_t layer_index(const std::string& module) {
  static const std::regex number("(^|\\.)(\\d+)\\.");
  std::smatch found;
  return std::regex_search(module, found, number) ? std::stoll(found[2]) : -1;
}

bool is_left_out(const LoraConfig& lora, const std::string& module) {
  for (const std::string& name : lora.exclude) {
    if (ends_with_name(module, name)) return true;
  }
  if (lora.layers_to_transform.empty()) return false;
  return std::find(lora.layers_to_transform.begin(), lora.layers_to_transform.end(), layer_index(module)) ==
         lora.layers_to_transform.end();
}

[[noreturn]] void refuse(const std::string& target, const std::vector<std::string>& modules) {
  std::string names;
  for (const std::string& name : last_names(modules)) names += (names.empty() ? "" : ", ") + name;
  throw UsageError("[lora] target '" + target + "' matches no linear layer; there are: " + names,
                   {"use --lora_target_modules all-linear", "可使用 --lora_target_modules all-linear"});
}

/// The first pattern (of ranks, then of alphas) that matches the module, as PEFT looks them up.
std::string pattern_key(const LoraConfig& lora, const std::string& module) {
  for (const auto& [pattern, rank] : lora.rank_pattern) {
    if (matches_end(pattern, module)) return pattern;
  }
  for (const auto& [pattern, alpha] : lora.alpha_pattern) {
    if (matches_end(pattern, module)) return pattern;
  }
  return module;
}

}  // namespace lora_targets_detail

bool matches_end(const std::string& pattern, const std::string& module) {
  return std::regex_match(module, lora_targets_detail::compiled("(.*\\.)?(" + pattern + ")"));
}

std::vector<size_t> match_targets(const LoraConfig& lora, const std::vector<std::string>& modules) {
  using namespace lora_targets_detail;
  std::set<size_t> chosen;
  for (const std::string& target : lora.targets) {
    const bool all = target == "all-linear";
    const bool is_regex = !all && lora.targets.size() == 1 && !is_plain_name(target);
    const std::regex expression = is_regex ? compiled(target) : std::regex();
    bool matched = false;
    for (size_t i = 0; i < modules.size(); ++i) {
      if (!(all || (is_regex ? std::regex_match(modules[i], expression) : ends_with_name(modules[i], target)))) continue;
      matched = true;
      if (!is_left_out(lora, modules[i])) chosen.insert(i);
    }
    if (!matched) refuse(target, modules);
  }
  if (chosen.empty()) throw UsageError("[lora] no module is left to adapt: targets, exclusions and layers contradict each other");
  return {chosen.begin(), chosen.end()};
}

int64_t rank_of(const LoraConfig& lora, const std::string& module) {
  const auto it = lora.rank_pattern.find(lora_targets_detail::pattern_key(lora, module));
  return it == lora.rank_pattern.end() ? lora.rank : it->second;
}

double scale_of(const LoraConfig& lora, const std::string& module) {
  const auto it = lora.alpha_pattern.find(lora_targets_detail::pattern_key(lora, module));
  const double alpha = it == lora.alpha_pattern.end() ? lora.alpha : it->second;
  const auto rank = static_cast<double>(rank_of(lora, module));
  return lora.rslora ? alpha / std::sqrt(rank) : alpha / rank;
}

std::vector<std::string> last_names(const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(module.substr(module.rfind('.') + 1));
  return {names.begin(), names.end()};
}

}  // namespace danlu::models
