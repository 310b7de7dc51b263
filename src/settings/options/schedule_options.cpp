#include "settings/options/schedule_options.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace danlu::settings {

bool is_of_trainer(const Options& options) {
  const std::string& system = options.profile().name;
  return system == "swift24" || system == "swift3" || system == "alpaca" ||
         system == "llamafactory";
}

bool leaves_warmup_out(const Options& options) {
  return is_of_trainer(options) && options.get_string("lr_scheduler") == "constant";
}

namespace {

/// What one of the Trainer's lr_scheduler_kwargs says of a schedule.
struct Argument {
  const char* name;
  const char* flag;  ///< the option of the same meaning
  ScheduleKind of;
  void (*take)(double value, ScheduleConfig& shape);
};

const std::vector<Argument>& arguments_of_schedules() {
  const auto end = [](double value, ScheduleConfig& shape) { shape.min_lr = value; };
  const auto part = [](double value, ScheduleConfig& shape) { shape.min_lr = value * shape.lr; };
  const auto cycles = [](double value, ScheduleConfig& shape) {
    shape.num_cycles = static_cast<int64_t>(value);
  };
  const auto power = [](double value, ScheduleConfig& shape) { shape.power = value; };
  static const std::vector<Argument> list = {
      {"min_lr", "min_lr", ScheduleKind::kCosine, end},
      {"min_lr_rate", "min_lr", ScheduleKind::kCosine, part},
      {"num_cycles", "lr_num_cycles", ScheduleKind::kCosineWithRestarts, cycles},
      {"lr_end", "min_lr", ScheduleKind::kPolynomial, end},
      {"power", "lr_power", ScheduleKind::kPolynomial, power}};
  return list;
}

/// --lr_scheduler_kwargs. Errors: UsageError for names that this schedule does not have, for values
/// that are none, and for what a flag says too.
void take_arguments(const Options& options, ScheduleConfig& shape) {
  if (!options.has_value("lr_scheduler_kwargs")) return;
  const Json told = options.get_json("lr_scheduler_kwargs");
  const std::string flag = options.given_as("lr_scheduler_kwargs");
  if (told.is_null()) return;
  if (!told.is_object()) throw UsageError(tr("[train] {}: expected a map", flag));
  for (const auto& [name, value] : told.items()) {
    const auto& known = arguments_of_schedules();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Argument& one) {
      return one.name == name && one.of == shape.kind;
    });
    if (found == known.end()) {
      throw UsageError(tr("[train] {}: {} has no '{}' here", flag, schedule_name(shape.kind), name),
                       tr("min_lr and min_lr_rate are of cosine_with_min_lr, num_cycles of "
                          "cosine_with_restarts, lr_end and power of polynomial"));
    }
    const double number = value.is_number() ? value.get<double>() : -1;
    const bool counts = name == "num_cycles";
    if (number < 0 || (counts && (number < 1 || number != std::floor(number)))) {
      throw UsageError(
          tr("[train] {}: '{}' must be {}, got {}", flag, name,
             counts ? tr("a whole number of at least 1") : tr("a number of at least 0"),
             value.dump()));
    }
    if (options.is_given(found->flag))
      throw UsageError(tr("[train] {}: {} says '{}' too; give one of them", flag,
                          options.given_as(found->flag), name));
    found->take(number, shape);
  }
}

/// transformers has no cosine_with_min_lr without an end. Errors: UsageError.
void require_end(const Options& options) {
  const bool is_said = options.is_given("min_lr") || options.has_value("lr_scheduler_kwargs");
  if (options.get_string("lr_scheduler") != "cosine_with_min_lr" || !is_of_trainer(options) ||
      is_said)
    return;
  throw UsageError(tr("[train] {} cosine_with_min_lr: where it ends is not said",
                      options.given_as("lr_scheduler")),
                   tr("give --min_lr, or lr_scheduler_kwargs with min_lr or min_lr_rate"));
}

/// Steps, or below 1 a part of all, as transformers 5 has it. Errors: UsageError.
void take_warmup(const Options& options, ScheduleChoice& schedule) {
  const double told = options.get_float("warmup_steps");
  if (told > 0 && told < 1) {
    schedule.warmup_ratio = told;
    return;
  }
  if (told != std::floor(told))
    throw UsageError(tr("[train] {} {}: expected whole steps, or a part below 1",
                        options.given_as("warmup_steps"), told));
  schedule.warmup_steps = static_cast<int64_t>(told);
}

/// Megatron's schedules that count samples.
void take_samples(const Options& options, ScheduleChoice& schedule) {
  const auto number = [&](const char* name, std::optional<int64_t>& samples) {
    if (options.has_value(name) && options.get_int(name) > 0) samples = options.get_int(name);
  };
  number("lr_warmup_samples", schedule.warmup_samples);
  number("lr_decay_samples", schedule.decay_samples);
  number("lr_wsd_decay_samples", schedule.wsd_decay_samples);
}

}  // namespace

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
  // The Trainer's 0 is its default: the ratio holds. Megatron allows no other beside a fraction.
  const bool may_be_default = is_of_trainer(options) || is_of_swift(options.profile().name) ||
                              schedule.warmup_fraction.has_value();
  if (options.has_value("warmup_steps") &&
      !(may_be_default && options.get_float("warmup_steps") == 0))
    take_warmup(options, schedule);
  take_samples(options, schedule);
  if (leaves_warmup_out(options)) {
    schedule.warmup_ratio = 0;
    schedule.warmup_fraction.reset();
    schedule.warmup_steps.reset();
    schedule.warmup_samples.reset();
  }
  schedule.scales_by_sample = name == "inverse-square-root";
  // The Trainer's polynomial ends there.
  if (schedule.shape.kind == ScheduleKind::kPolynomial && is_of_trainer(options) &&
      !options.is_given("min_lr"))
    schedule.shape.min_lr = std::min(schedule.shape.lr, 1e-7);
  take_arguments(options, schedule.shape);
  require_end(options);
  if (options.has_value("lr_decay_iters"))
    schedule.decay_total_steps = options.get_int("lr_decay_iters");
  if (options.has_value("wsd_decay_steps"))
    schedule.wsd_decay_steps = options.get_int("wsd_decay_steps");
  return schedule;
}

}  // namespace danlu::settings
