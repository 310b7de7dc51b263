#include "settings/options/optimizer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
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

/// What others call it after which the choice of an optimizer is as good as a flag of its own.
bool is_chosen(const Options& options, const char* flag, std::initializer_list<const char*> names) {
  const std::string name = options.get_string("optim");
  return options.get_bool_or(flag, false) ||
         std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

/// Names of modules; "all" of them are none here.
std::vector<std::string> targets_from(const Options& options, const char* name) {
  std::vector<std::string> targets;
  if (options.has_value(name)) targets = options.get_list(name);
  const auto is_all = [](const std::string& target) {
    return target == "all" || target == "all-linear";
  };
  return std::any_of(targets.begin(), targets.end(), is_all) ? std::vector<std::string>{} : targets;
}

/// "rank=64, update_proj_gap=200": the Trainer's words for the flags. Errors: UsageError.
void take_trainers_words(const Options& options, LowRankConfig& config) {
  if (!options.has_value("optim_args")) return;
  const auto refuse = [&](const std::string& word) {
    throw UsageError(tr("[train] {}: '{}' is none of it", options.given_as("optim_args"), word),
                     tr("as 'rank=128, update_proj_gap=200, scale=0.25, proj_type=std'"));
  };
  for (std::string word : options.get_list("optim_args")) {
    std::erase(word, ' ');
    const size_t at = word.find('=');
    if (at == std::string::npos) refuse(word);
    const std::string key = word.substr(0, at), value = word.substr(at + 1);
    double number = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = read.ec == std::errc() && read.ptr == value.data() + value.size();
    if (key == "proj_type") {
      config.side = value;
    } else if (!is_number) {
      refuse(word);
    } else if (key == "scale") {
      config.scale = number;
    } else if (key == "rank") {
      config.rank = static_cast<int64_t>(number);
    } else if (key == "update_proj_gap") {
      config.interval = static_cast<int64_t>(number);
    } else {
      refuse(word);
    }
  }
}

/// None where no matrix is updated in a subspace. Errors: UsageError for two optimizers.
std::optional<LowRankConfig> low_rank_from(const Options& options) {
  const bool galore = is_chosen(options, "use_galore", {"galore", "galore_adamw"});
  const bool apollo = is_chosen(options, "use_apollo", {"apollo"});
  if (!galore && !apollo) return std::nullopt;
  const std::string flag = galore ? "galore_" : "apollo_";
  LowRankConfig config;
  config.method = galore ? LowRankConfig::Method::kGalore : LowRankConfig::Method::kApollo;
  config.rank = options.get_int(flag + "rank");
  config.interval = options.get_int(flag + "update_interval");
  config.scale = options.get_float(flag + "scale");
  config.side = options.get_string(flag + "proj_type");
  config.targets = targets_from(options, (flag + "target").c_str());
  config.seed = static_cast<uint64_t>(options.get_int("seed"));
  if (galore) {
    config.with_embedding = options.get_bool("galore_with_embedding");
    // The Trainer's defaults.
    if (options.get_string("optim") == "galore_adamw") {
      if (!options.is_given("galore_update_interval")) config.interval = 200;
      if (!options.is_given("galore_scale")) config.scale = 0.25;
    }
  } else {
    config.draws = options.get_string("apollo_proj") == "random";
    config.has_one_factor = options.get_string("apollo_scale_type") == "tensor";
    config.scales_first = options.get_bool("apollo_scale_front");
  }
  take_trainers_words(options, config);
  return config;
}

/// None where every layer is trained in every step. Errors: UsageError.
std::optional<LayerTurns> turns_from(const Options& options) {
  using Order = LayerTurns::Order;
  LayerTurns turns;
  turns.seed = static_cast<uint64_t>(options.get_int("seed"));
  if (options.get_int("lisa_activated_layers") > 0) {
    turns.layers = options.get_int("lisa_activated_layers");
    turns.interval = options.get_int("lisa_step_interval");
    if (options.get_bool_or("use_badam", false))
      throw UsageError(tr("[train] {}: one optimizer at a time", "LISA, BAdam"));
    return turns;
  }
  if (!options.get_bool_or("use_badam", false)) return std::nullopt;
  turns.is_badam = true;
  turns.interval = options.get_int("badam_switch_interval");
  if (options.has_value("badam_start_block")) turns.start = options.get_int("badam_start_block");
  const std::string order = options.get_string("badam_switch_mode");
  turns.order = order == "random"       ? Order::kRandom
                : order == "ascending"  ? Order::kAscending
                : order == "descending" ? Order::kDescending
                                        : Order::kFixed;
  return turns;
}

/// Errors: UsageError for more than one.
void require_one_optimizer(const Options& options, const AdamWConfig& adamw) {
  std::vector<std::string> named;
  if (adamw.muon) named.push_back("Muon");
  if (is_chosen(options, "use_galore", {"galore", "galore_adamw"})) named.push_back("GaLore");
  if (is_chosen(options, "use_apollo", {"apollo"})) named.push_back("APOLLO");
  if (adamw.mini) named.push_back("Adam-mini");
  if (adamw.turns) named.push_back(adamw.turns->name());
  if (named.size() > 1)
    throw UsageError(
        tr("[train] {}: one optimizer at a time", fmt::format("{}", fmt::join(named, ", "))));
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
  adamw.low_rank = low_rank_from(options);
  if (is_chosen(options, "use_adam_mini", {"adam_mini"})) adamw.mini.emplace();
  adamw.turns = turns_from(options);
  require_one_optimizer(options, adamw);
  for (const char* name : {"optim_args", "galore_target"}) {
    if (options.is_given(name) && !adamw.low_rank)
      throw UsageError(tr("[train] {}: the optimizer has no subspaces", options.given_as(name)),
                       tr("--optim galore or apollo has"));
  }
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
