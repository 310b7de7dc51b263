#include "settings/options/optimizer_options.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "settings/options/vision_options.h"

namespace danlu::settings {
namespace {

bool is_group_rule(const Json& rule) {
  if (!rule.is_object() || !rule.contains("pattern")) return false;
  for (const auto& [key, value] : rule.items()) {
    const bool is_number = key == "lr_scale" || key == "weight_decay";
    if (is_number ? !value.is_number() : key != "pattern" || !value.is_string()) return false;
  }
  return true;
}

/// Errors: UsageError unless it is a list of such rules.
std::vector<GroupRule> group_rules_from(const Json& rules) {
  if (!rules.is_array() || !std::all_of(rules.begin(), rules.end(), is_group_rule)) {
    throw UsageError(
        tr("[train] --param_groups: a list of {{\"pattern\", \"lr_scale\", "
           "\"weight_decay\"}} is expected, got {}",
           rules.dump(-1, ' ', false, Json::error_handler_t::replace)),
        tr("as '[{{\"pattern\": \"embed\", \"lr_scale\": 0.1}}]': a pattern is a text, "
           "the others are numbers and may be left out"));
  }
  std::vector<GroupRule> result;
  for (const Json& rule : rules) {
    result.push_back({rule["pattern"].get<std::string>(), rule.value("lr_scale", 1.0),
                      rule.value("weight_decay", -1.0), "param_groups"});
  }
  return result;
}

/// None where AdamW has all.
std::optional<MuonConfig> muon_from(const Options& options) {
  const std::string name = options.get_string("optim");
  if (name != "muon" && name != "dist_muon" && !options.get_bool_or("use_muon", false))
    return std::nullopt;
  MuonConfig muon;
  muon.momentum = options.get_float("muon_momentum");
  muon.nesterov = options.get_bool("muon_nesterov");
  muon.coefficients = options.get_string("muon_coefficient_type");
  muon.num_steps = options.get_int("muon_num_ns_steps");
  muon.scale_mode = options.get_string("muon_scale_mode");
  muon.extra_scale = options.get_float("muon_extra_scale_factor");
  const std::string& system = options.profile().name;
  const bool is_cut_there = system == "mindspeed" || system == "megatron-swift";
  if (is_cut_there && options.get_int_or("tp", 1) > 1 && !options.is_given("muon_tp_mode")) {
    log::notice(
        "{}: whole matrices are orthogonalised, as by --muon_tp_mode duplicated; there each rank "
        "does its part of a matrix by itself (blockwise), which is another update",
        options.given_as("optim"));
  }
  return muon;
}

/// A rate of some parameters as a multiple of the run's. Errors: UsageError where that is 0.
double multiple_of(double rate, const Options& options, const std::string& name) {
  const double wanted = options.get_float(name);
  if (rate != 0) return wanted / rate;
  if (wanted == 0) return 1;
  throw UsageError(tr("[train] {} {:g}: the run's rate is 0, and every rate is a multiple of it",
                      options.given_as(name), wanted),
                   tr("--lr {:g}, and freeze what is not to learn: --freeze_llm, --freeze_vit, "
                      "--freeze_aligner",
                      wanted));
}

/// What flags of other systems say of the rates of some parameters.
std::vector<GroupRule> rates_by_part(const Options& options, double rate,
                                     const std::vector<std::string>& frozen) {
  std::vector<GroupRule> rules;
  const bool is_plus = options.has_value("loraplus_lr_ratio");
  const double ratio = is_plus ? options.get_float("loraplus_lr_ratio") : 1;
  if (is_plus) rules.push_back({"lora_B", ratio, -1, options.given_as("loraplus_lr_ratio")});
  for (const auto& [name, part] :
       {std::pair{"vit_lr", "visual\\.(?!merger)"}, std::pair{"aligner_lr", "visual\\.merger"}}) {
    if (!options.has_value(name)) continue;
    const char* const freeze = name == std::string_view("vit_lr") ? kFrozenTower : kFrozenMerger;
    if (std::find(frozen.begin(), frozen.end(), freeze) != frozen.end()) {
      log::notice("{} has no effect: the part of the model that it is the rate of is frozen",
                  options.given_as(name));
      continue;
    }
    const double scale = multiple_of(rate, options, name);
    const std::string flag = options.given_as(name);
    rules.push_back({part, scale, -1, flag});
    if (is_plus) rules.push_back({std::string(part) + ".*lora_B", scale * ratio, -1, flag, true});
  }
  return rules;
}

}  // namespace

AdamWConfig adamw_from(const Options& options) {
  AdamWConfig adamw;
  adamw.beta1 = options.get_float("adam_beta1");
  adamw.beta2 = options.get_float("adam_beta2");
  adamw.eps = options.get_float("adam_epsilon");
  adamw.groups.weight_decay = options.get_float("weight_decay");
  adamw.groups.decay_rule = decay_rule_from_name(options.get_string("weight_decay_on"));
  adamw.muon = muon_from(options);
  return adamw;
}

std::vector<GroupRule> group_rules_of(const Options& options, double rate,
                                      const std::vector<std::string>& frozen) {
  std::vector<GroupRule> rules = rates_by_part(options, rate, frozen);
  if (!options.has_value("param_groups")) return rules;
  for (GroupRule& rule : group_rules_from(options.get_json("param_groups")))
    rules.push_back(std::move(rule));
  return rules;
}

}  // namespace danlu::settings
