#include "train/start/begin_critic.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "settings/model_source.h"
#include "train/objectives/value.h"
#include "train/rollouts/judges.h"
#include "train/run_dir/resume.h"
#include "train/start/begin.h"
#include "weights/lora/adapter_places.h"

namespace danlu::train {
namespace {

/// What the critic begins as, and the flag that says so; "" for the policy's own weights.
std::pair<settings::ModelSource, std::string> critic_source(const TrainConfig& config) {
  const settings::Reinforcement& told = config.objective.policy;
  settings::ModelSource source = config.model;
  std::string flag;
  if (!told.critic.model.empty()) {
    source = settings::reward_model_at(told.critic.model);
    flag = config.flag("critic_model");
  } else if (!told.reward_models.empty()) {
    source = settings::reward_model_at(told.reward_models.front());
    flag = config.flag("reward_model");
  }
  if (!source.score) source.score.emplace();
  source.score->seed = config.seed;
  if (flag.empty()) source.adapter.clear();
  return {std::move(source), std::move(flag)};
}

/// The policy's settings with what is the critic's own.
TrainConfig critic_config(const TrainConfig& policy, const settings::ModelSource& source,
                          const weights::CheckpointSource& opened) {
  TrainConfig config = policy;
  config.model.path = source.path;
  config.model.adapter = source.adapter;
  config.model.companions = opened.companions;
  config.model.score = source.score;
  config.prediction = {};
  config.freeze = {};
  config.tuner = policy.tuner == Tuner::kLora ? Tuner::kLora : Tuner::kFull;
  if (config.tuner != Tuner::kLora) return config;
  std::vector<std::string>& whole = config.lora.modules_to_save;
  // It has no head of a vocabulary, which new tokens of the policy train.
  std::erase_if(whole, [&](const std::string& entry) {
    const std::vector<arch::ParamSpec> all = arch::parameters_of(opened.config);
    return std::none_of(all.begin(), all.end(), [&](const arch::ParamSpec& spec) {
      return weights::is_within(arch::module_of(spec.name), entry) ||
             weights::is_named(arch::module_of(spec.name), entry);
    });
  });
  const std::string head = opened.config.score->module();
  if (std::find(whole.begin(), whole.end(), head) == whole.end()) whole.push_back(head);
  if (opened.config.score->form == arch::ScoreForm::kSequence) config.lora.task_type = "SEQ_CLS";
  return config;
}

/// The critic's part of the checkpoint that the run goes on from.
EarlierRun earlier_critic(const EarlierRun& policy) {
  EarlierRun earlier;
  earlier.is_own = policy.is_own;
  if (!policy.checkpoint) return earlier;
  // Its contents were read where the policy's checkpoint was found.
  if (const auto own = critic_of(*policy.checkpoint))
    earlier.checkpoint = checkpoint::open(*own, checkpoint::Check::kSizes);
  return earlier;
}

}  // namespace

settings::ScheduleConfig critic_schedule(settings::ScheduleConfig schedule, double lr) {
  if (lr == 0) return schedule;
  if (schedule.lr == 0) {  // so are its ends
    schedule.lr = lr;
    return schedule;
  }
  const double ratio = lr / schedule.lr;
  for (double* rate : {&schedule.lr, &schedule.min_lr, &schedule.start_lr}) *rate *= ratio;
  return schedule;
}

std::unique_ptr<Critic> begin_critic(const Prepared& run) {
  const settings::Reinforcement& told = run.config.objective.policy;
  if (run.config.objective.kind != settings::ObjectiveKind::kPolicy || !told.has_critic())
    return nullptr;
  const auto [source, flag] = critic_source(run.config);
  weights::CheckpointSource opened = settings::open_model(source);
  if (!flag.empty())
    require_same_tokens(*run.text.tokenizer, fmt::format("{} {}", flag, source.path.string()),
                        source.adapter.empty() ? opened.companions : source.adapter);
  name_padding(run.text, opened.config);
  const TrainConfig config = critic_config(run.config, source, opened);
  config.validate();
  log::info("critic: {}{}", source.path.string(),
            flag.empty() ? tr(", with a head of its own") : "");
  const EarlierRun earlier = earlier_critic(run.earlier);
  const std::shared_ptr<const Objective> objective =
      value_objective(told.critic.weight, told.critic.clip);
  Begun begun = begin_training({config, run.device, run.ranks, opened, run.text, run.data,
                                run.steps, earlier, Origin{}, run.memory, objective});
  return std::make_unique<Critic>(std::move(begun.state), config,
                                  critic_schedule(run.steps.plan.schedule, told.critic.lr));
}

}  // namespace danlu::train
