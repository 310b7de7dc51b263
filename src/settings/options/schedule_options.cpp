#include "settings/options/schedule_options.h"

#include <algorithm>
#include <string>

namespace danlu::settings {

bool is_of_trainer(const Options& options) {
  const std::string& system = options.profile().name;
  return system == "swift24" || system == "swift3" || system == "alpaca" ||
         system == "llamafactory";
}

bool leaves_warmup_out(const Options& options) {
  return is_of_trainer(options) && options.get_string("lr_scheduler") == "constant";
}

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
  // Here "constant" warms up, and only if told to: no profile's ratio is for it.
  const std::string name = options.get_string("lr_scheduler");
  schedule.warmup_ratio = name == "constant" && !options.is_given("warmup_ratio")
                              ? 0.0
                              : options.get_float_or("warmup_ratio", 0.05);
  if (options.has_value("lr_warmup_fraction"))
    schedule.warmup_fraction = options.get_float("lr_warmup_fraction");
  // The Trainer's 0 is its default: the ratio holds; so is Megatron-SWIFT's beside a fraction.
  const bool may_be_default = is_of_trainer(options) || is_of_swift(options.profile().name);
  if (options.has_value("warmup_steps") &&
      !(may_be_default && options.get_int("warmup_steps") == 0))
    schedule.warmup_steps = options.get_int("warmup_steps");
  if (leaves_warmup_out(options)) {
    schedule.warmup_ratio = 0;
    schedule.warmup_fraction.reset();
    schedule.warmup_steps.reset();
  }
  schedule.scales_by_sample = name == "inverse-square-root";
  // The Trainer's polynomial ends there.
  if (schedule.shape.kind == ScheduleKind::kPolynomial && is_of_trainer(options) &&
      !options.is_given("min_lr"))
    schedule.shape.min_lr = std::min(schedule.shape.lr, 1e-7);
  if (options.has_value("lr_decay_iters"))
    schedule.decay_total_steps = options.get_int("lr_decay_iters");
  if (options.has_value("wsd_decay_steps"))
    schedule.wsd_decay_steps = options.get_int("wsd_decay_steps");
  return schedule;
}

}  // namespace danlu::settings
