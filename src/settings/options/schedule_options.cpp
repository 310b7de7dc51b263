#include "settings/options/schedule_options.h"

#include <string>

namespace danlu::settings {

ScheduleChoice schedule_from(const Options& options, Tuner tuner) {
  ScheduleChoice schedule;
  schedule.shape.kind = schedule_from_name(options.get_string("lr_scheduler"));
  schedule.shape.lr = options.get_float_or("lr", tuner == Tuner::kLora ? 1e-4 : 1e-5);
  schedule.shape.min_lr = options.get_float("min_lr");
  if (schedule.shape.kind == ScheduleKind::kWarmupCosineLr && !options.is_given("min_lr"))
    schedule.shape.min_lr = kCosineMinRatio * schedule.shape.lr;
  schedule.shape.power = options.get_float("lr_power");
  schedule.shape.num_cycles = options.get_int("lr_num_cycles");
  schedule.shape.decay_ramp = ramp_from_name(options.get_string("wsd_decay_style"));
  // The Trainer's "constant" warms up only here, and only if told to: no profile's ratio is for it.
  const bool plain_constant = options.get_string("lr_scheduler") == "constant";
  schedule.warmup_ratio = plain_constant && !options.is_given("warmup_ratio")
                              ? 0.0
                              : options.get_float_or("warmup_ratio", 0.05);
  if (options.has_value("lr_warmup_fraction"))
    schedule.warmup_fraction = options.get_float("lr_warmup_fraction");
  // The Trainer's 0 is its default: the ratio holds.
  const std::string& system = options.profile().name;
  const bool of_the_trainer =
      system.starts_with("swift") || system == "alpaca" || system == "llamafactory";
  if (options.has_value("warmup_steps") &&
      !(of_the_trainer && options.get_int("warmup_steps") == 0))
    schedule.warmup_steps = options.get_int("warmup_steps");
  if (options.has_value("lr_decay_iters"))
    schedule.decay_total_steps = options.get_int("lr_decay_iters");
  if (options.has_value("wsd_decay_steps"))
    schedule.wsd_decay_steps = options.get_int("wsd_decay_steps");
  return schedule;
}

}  // namespace danlu::settings
