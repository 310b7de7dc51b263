#include "cli/commands/foreign_options.h"

#include <utility>

namespace danlu::cli {
namespace {

OptionSpec named(OptionType type, const ForeignNames& names) {
  return {.name = names.front(),
          .type = type,
          .help = "accepted",
          .aliases = {names.begin() + 1, names.end()},
          .group = "Other systems"};
}

}  // namespace

OptionSpec ignored(const ForeignNames& names, std::string why) {
  OptionSpec spec = named(OptionType::kString, names);
  spec.ignored_because = std::move(why);
  return spec;
}

OptionSpec ignored_list(const ForeignNames& names, std::string why) {
  OptionSpec spec = named(OptionType::kList, names);
  spec.ignored_because = std::move(why);
  return spec;
}

OptionSpec ignored_switch(const ForeignNames& names, std::string why) {
  OptionSpec spec = named(OptionType::kBool, names);
  spec.ignored_because = std::move(why);
  return spec;
}

OptionSpec unavailable(const ForeignNames& names, std::string why, ForeignNames neutral,
                       std::string hint) {
  OptionSpec spec = named(OptionType::kString, names);
  spec.choices = std::move(neutral);
  spec.unavailable_because = std::move(why);
  spec.unavailable_hint = std::move(hint);
  return spec;
}

std::set<std::string> names_of(const std::vector<OptionSpec>& specs) {
  std::set<std::string> names;
  for (const OptionSpec& spec : specs) {
    names.insert(spec.name);
    names.insert(spec.aliases.begin(), spec.aliases.end());
  }
  return names;
}

std::vector<OptionSpec> without_names(std::vector<OptionSpec> specs, std::set<std::string>& known) {
  std::vector<OptionSpec> kept;
  for (OptionSpec& spec : specs) {
    std::vector<std::string> names = {spec.name};
    names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
    std::erase_if(names, [&](const std::string& name) { return !known.insert(name).second; });
    if (names.empty()) continue;
    spec.name = names.front();
    spec.aliases.assign(names.begin() + 1, names.end());
    kept.push_back(std::move(spec));
  }
  return kept;
}

std::vector<OptionSpec> multimodal_options() {
  return {unavailable({"mm_data", "mm_model", "mm_tool"},
                      "MindSpeed-MM's files describe its training and its inference", {},
                      tr("danlu pretrain and danlu infer read them"))};
}

std::vector<OptionSpec> reinforcement_options() {
  return {unavailable(
      {"rl_config", "actor_config", "ref_config", "critic_config", "reward_config",
       "generate_config", "actor_rollout"},
      "this describes reinforcement learning in several jobs, whose files are not read", {},
      tr("danlu rlhf --rlhf_type grpo, or ppo, does it in one job "
         "(docs/reinforcement.md)"))};
}

}  // namespace danlu::cli
