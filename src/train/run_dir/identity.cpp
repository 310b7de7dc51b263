#include "train/run_dir/identity.h"

#include <fmt/format.h>

#include "weights/hf/fingerprint.h"

namespace danlu::train {
namespace identity_detail {

Json lora_identity(const TrainConfig& config) {
  if (config.tuner != Tuner::kLora) return nullptr;
  const models::LoraConfig& lora = config.lora;
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"dropout", lora.dropout},
          {"rslora", lora.rslora},
          {"dora", lora.dora},
          {"targets", lora.targets},
          {"modules_to_save", lora.modules_to_save}};
}

Json loss_scale_identity(const TrainConfig& config) {
  if (config.precision != Precision::kF16) return nullptr;
  const optim::LossScaleConfig& scale = config.loss_scale;
  return {{"fixed", scale.fixed_scale},
          {"initial", scale.initial_scale},
          {"window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"min", scale.min_scale}};
}

uint64_t fingerprint_of(const weights::CheckpointSource& source) {
  const bool is_hf_directory = source.format == weights::Format::kHuggingFace &&
                               std::filesystem::is_directory(source.companions) &&
                               (!source.model || source.path == source.companions);
  return is_hf_directory ? weights::model_fingerprint(source.companions)
                         : weights::model_fingerprint(source.files);
}

void add_optimizer(const TrainConfig& config, Json& identity) {
  Json rules = Json::array();
  for (const optim::GroupRule& rule : config.adamw.groups.rules)
    rules.push_back({rule.pattern, rule.lr_scale, rule.weight_decay});
  identity["adam_beta1"] = config.adamw.beta1;
  identity["adam_beta2"] = config.adamw.beta2;
  identity["adam_epsilon"] = config.adamw.eps;
  identity["weight_decay"] = config.adamw.groups.weight_decay;
  identity["weight_decay_on"] =
      config.adamw.groups.decay_rule == optim::DecayRule::kAll ? "all" : "matrices";
  identity["param_groups"] = rules;
  identity["max_grad_norm"] = config.max_grad_norm;
  identity["loss_scale"] = loss_scale_identity(config);
}

void add_schedule(const optim::ScheduleConfig& schedule, Json& identity) {
  identity["lr"] = schedule.lr;
  identity["min_lr"] = schedule.min_lr;
  identity["start_lr"] = schedule.start_lr;
  identity["lr_scheduler"] = optim::schedule_name(schedule.kind);
  identity["warmup_steps"] = schedule.warmup_steps;
  identity["warmup_ramp"] = optim::ramp_name(schedule.warmup_ramp);
  identity["lr_decay_iters"] = schedule.total_steps;
  identity["wsd_decay_steps"] = schedule.decay_steps;
  identity["wsd_decay_style"] = optim::ramp_name(schedule.decay_ramp);
  identity["lr_power"] = schedule.power;
  identity["lr_num_cycles"] = schedule.num_cycles;
}

}  // namespace identity_detail

Json run_identity(const TrainConfig& config, const weights::CheckpointSource& source,
                  const RunPlan& plan) {
  Json identity = {{"stage", stage_name(config.stage)},
                   {"tuner", tuner_name(config.tuner)},
                   {"precision", precision_name(config.precision)},
                   {"seed", config.seed},
                   {"model", fmt::format("{:016x}", identity_detail::fingerprint_of(source))},
                   {"from_scratch", config.model.from_scratch},
                   {"lora", identity_detail::lora_identity(config)},
                   {"freeze", config.freeze},
                   {"max_length", config.data.max_length},
                   {"packing", config.data.share_passes},
                   {"pack_sequences", config.data.pack_sequences},
                   {"shuffle", config.data.shuffle},
                   {"data_seed", config.data.seed},
                   {"batch_size", config.batch.micro_batch_size},
                   {"global_batch_size", plan.global_batch_size},
                   {"num_samples", plan.num_samples},
                   {"total_steps", plan.total_steps}};
  identity_detail::add_optimizer(config, identity);
  identity_detail::add_schedule(plan.schedule, identity);
  return identity;
}

}  // namespace danlu::train
