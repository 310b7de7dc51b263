#include "weights/convert/training_state.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "weights/native/native.h"

namespace danlu::weights {
namespace {

/// Megatron's names of the schedules that it has.
std::string megatrons_style(const std::string& schedule) {
  if (schedule == "inverse_sqrt") return "inverse-square-root";
  return schedule == "wsd" ? "WSD" : schedule;
}

}  // namespace

Json megatron_schedule(const Json& identity, int64_t consumed_samples) {
  const auto number = [&](const char* key) { return json_get<double>(identity, key).value_or(0); };
  const int64_t batch = json_get<int64_t>(identity, "global_batch_size").value_or(1);
  // A warm-up may be of so many updates and a half, and of whole samples even so.
  const auto samples = [&](const char* key) {
    const double exact = number(key) * static_cast<double>(batch);
    const auto whole = static_cast<int64_t>(std::llround(exact));
    return static_cast<double>(whole) == exact ? Json(whole) : Json(exact);
  };
  const double decay = number("weight_decay");
  return {{"max_lr", number("lr")},
          {"lr_warmup_steps", samples("warmup_steps")},
          {"num_steps", consumed_samples},
          {"lr_decay_style",
           megatrons_style(json_get<std::string>(identity, "lr_scheduler").value_or("constant"))},
          {"lr_decay_steps", samples("lr_decay_iters")},
          {"min_lr", number("min_lr")},
          {"start_wd", decay},
          {"end_wd", decay},
          {"wd_incr_style", "constant"},
          {"wd_incr_steps", samples("total_steps")}};
}

namespace {

Json group_of(const Json& identity, double wd_mult, int64_t step) {
  const auto number = [&](const char* key, double fallback) {
    return json_get<double>(identity, key).value_or(fallback);
  };
  const bool all_decay =
      json_get<std::string>(identity, "weight_decay_on").value_or("matrices") == "all";
  // The last three: what Apex's and MindSpeed's Adam look for in a group.
  return {{"wd_mult", wd_mult},
          {"lr_mult", 1.0},
          {"is_expert_parallel", false},
          {"is_decoupled_lr", false},
          {"lr", number("lr", 0)},
          {"betas", {number("adam_beta1", 0.9), number("adam_beta2", 0.999)}},
          {"eps", number("adam_epsilon", 1e-8)},
          {"weight_decay", number("weight_decay", 0) * (all_decay ? 1.0 : wd_mult)},
          {"max_lr", number("lr", 0)},
          {"min_lr", number("min_lr", 0)},
          {"step", step},
          {"bias_correction", true},
          {"amsgrad", false},
          {"maximize", false}};
}

void read_settings(const fs::path& checkpoint, OptimizerSettings& settings) {
  const Json trainer = read_json_file(checkpoint / "trainer_state.json");
  settings.iteration = json_get<int64_t>(trainer, "global_step").value_or(0);
  const int64_t updates =
      json_get<int64_t>(trainer, "optimizer_updates").value_or(settings.iteration);
  if (fs::exists(checkpoint / "data_state.json")) {
    const Json data = read_json_file(checkpoint / "data_state.json");
    settings.consumed_train_samples = json_get<int64_t>(data, "consumed_samples").value_or(0);
  }
  const Json identity = json_get<Json>(trainer, "identity").value_or(Json::object());
  settings.scheduler = megatron_schedule(identity, settings.consumed_train_samples);
  for (const double wd_mult : {1.0, 0.0})
    settings.groups.push_back(group_of(identity, wd_mult, updates));
}

}  // namespace

OptimizerState open_training_state(const fs::path& checkpoint, const arch::ModelConfig& config) {
  OptimizerState state;
  state.tensors = native::open_state(checkpoint / "optim");
  if (!state.tensors || !fs::exists(checkpoint / "trainer_state.json")) {
    throw ModelError(tr("{}: no optimizer state in it (looked for the "
                        "index in optim and trainer_state.json)",
                        checkpoint.string()),
                     tr("name a checkpoint-<step> directory of a training run, or leave out "
                        "--with-optimizer (--load-model-type optim)"));
  }
  for (const arch::ParamSpec& info : arch::parameters_of(config)) {
    // No gradient moves what chooses among experts.
    if (!info.tied_to.empty() || info.role == arch::Role::kRouterBias) continue;
    for (const char* prefix : kOtherStatePrefixes) {
      if (!state.tensors->find(prefix + info.name)) continue;
      throw ModelError(
          tr("{}: {}: Megatron's format is written with the state of Adam alone",
             (checkpoint / "optim").string(), prefix + info.name),
          tr("leave out --with-optimizer (--load-model-type optim): the weights are converted"));
    }
    for (const char* prefix : {"exp_avg.", "exp_avg_sq."}) {
      const TensorInfo* found = state.tensors->find(prefix + info.name);
      if (found && found->shape == info.shape) continue;
      throw ModelError(
          tr("{}: no {}{} of the model's shape: only states of full training are converted",
             (checkpoint / "optim").string(), prefix, info.name));
    }
    state.has_master |= state.tensors->find("master." + info.name) != nullptr;
  }
  read_settings(checkpoint, state.settings);
  return state;
}

}  // namespace danlu::weights
