#include "settings/options/schedule_options.h"

#include <algorithm>
#include <cmath>
#include <map>
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
  void (*take)(double value, ScheduleChoice& schedule);
  bool counts = false;  ///< whole, at least 1
};

const std::vector<Argument>& arguments_of_schedules() {
  using enum ScheduleKind;
  const auto end = [](double value, ScheduleChoice& to) { to.shape.min_lr = value; };
  const auto part = [](double value, ScheduleChoice& to) { to.shape.min_lr = value * to.shape.lr; };
  const auto cycles = [](double value, ScheduleChoice& to) {
    to.shape.num_cycles = static_cast<int64_t>(value);
  };
  const auto power = [](double value, ScheduleChoice& to) { to.shape.power = value; };
  const auto scale = [](double value, ScheduleChoice& to) { to.shape.timescale = value; };
  const auto decay = [](double value, ScheduleChoice& to) {
    to.wsd_decay_steps = static_cast<int64_t>(value);
  };
  static const std::vector<Argument> list = {
      {"min_lr", "min_lr", kCosine, end},
      {"min_lr_rate", "min_lr", kCosine, part},
      {"num_cycles", "lr_num_cycles", kCosineWithRestarts, cycles, true},
      {"lr_end", "min_lr", kPolynomial, end},
      {"power", "lr_power", kPolynomial, power},
      {"timescale", nullptr, kInverseSqrt, scale, true},
      {"num_decay_steps", "wsd_decay_steps", kWarmupStableDecay, decay, true},
      {"min_lr_ratio", "min_lr", kWarmupStableDecay, part}};
  return list;
}

/// Whether it is an argument that says what is so anyway: half a wave of a cosine, a straight
/// warm-up.
bool changes_nothing(const std::string& name, const Json& value, ScheduleKind kind) {
  const bool has_cosine = kind == ScheduleKind::kCosine || kind == ScheduleKind::kWarmupStableDecay;
  return (name == "num_cycles" && has_cosine && value == 0.5) ||
         (name == "warmup_type" && kind == ScheduleKind::kWarmupStableDecay && value == "linear");
}

/// Errors: UsageError for a value that is none, and for what a flag says too.
void take_argument(const Options& options, const Argument& argument, const Json& value,
                   ScheduleChoice& schedule) {
  const std::string flag = options.given_as("lr_scheduler_kwargs");
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || (argument.counts && (number < 1 || number != std::floor(number)))) {
    throw UsageError(
        tr("[train] {}: '{}' must be {}, got {}", flag, argument.name,
           argument.counts ? tr("a whole number of at least 1") : tr("a number of at least 0"),
           value.dump()));
  }
  if (argument.flag && options.is_given(argument.flag))
    throw UsageError(tr("[train] {}: {} says '{}' too; give one of them", flag,
                        options.given_as(argument.flag), argument.name));
  argument.take(number, schedule);
}

/// decay_type of warmup_stable_decay. Errors: UsageError.
void take_decay_type(const Options& options, const Json& value, ScheduleConfig& shape) {
  static const std::map<std::string, Ramp> names = {
      {"linear", Ramp::kLinear}, {"cosine", Ramp::kCosine}, {"1-sqrt", Ramp::kOneMinusSqrt}};
  const auto found = names.find(value.is_string() ? value.get<std::string>() : "");
  if (found == names.end())
    throw UsageError(tr("[train] {}: '{}' must be {}, got {}",
                        options.given_as("lr_scheduler_kwargs"), "decay_type",
                        "linear | cosine | 1-sqrt", value.dump()));
  shape.decay_ramp = found->second;
}

/// --lr_scheduler_kwargs. Errors: UsageError for names that this schedule does not have, for values
/// that are none, and for what a flag says too.
void take_arguments(const Options& options, ScheduleChoice& schedule) {
  if (!options.has_value("lr_scheduler_kwargs")) return;
  const Json told = options.get_json("lr_scheduler_kwargs");
  const std::string flag = options.given_as("lr_scheduler_kwargs");
  if (told.is_null()) return;
  if (!told.is_object()) throw UsageError(tr("[train] {}: expected a map", flag));
  const ScheduleKind kind = schedule.shape.kind;
  for (const auto& [name, value] : told.items()) {
    if (changes_nothing(name, value, kind)) continue;
    if (name == "decay_type" && kind == ScheduleKind::kWarmupStableDecay) {
      take_decay_type(options, value, schedule.shape);
      continue;
    }
    const auto& known = arguments_of_schedules();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Argument& one) {
      return one.name == name && one.of == kind;
    });
    if (found == known.end()) {
      throw UsageError(tr("[train] {}: {} has no '{}' here", flag, schedule_name(kind), name),
                       tr("min_lr and min_lr_rate are of cosine_with_min_lr, num_cycles of "
                          "cosine_with_restarts, lr_end and power of polynomial, timescale of "
                          "inverse_sqrt, num_decay_steps, decay_type and min_lr_ratio of "
                          "warmup_stable_decay"));
    }
    take_argument(options, *found, value, schedule);
  }
}

/// The Trainer's warmup_stable_decay falls by a cosine unless it is told; how long, LLaMA-Factory
/// alone knows by itself. Errors: UsageError.
void take_stable_decay(const Options& options, ScheduleChoice& schedule) {
  if (options.get_string("lr_scheduler") != "warmup_stable_decay" || !is_of_trainer(options))
    return;
  if (!options.is_given("wsd_decay_style")) schedule.shape.decay_ramp = Ramp::kCosine;
  schedule.is_stable_for_a_third = options.profile().name == "llamafactory";
}

/// Errors: UsageError.
void require_decay(const Options& options, const ScheduleChoice& schedule) {
  const bool is_said =
      schedule.wsd_decay_steps || schedule.wsd_decay_samples || schedule.is_stable_for_a_third;
  if (options.get_string("lr_scheduler") != "warmup_stable_decay" || !is_of_trainer(options) ||
      is_said)
    return;
  throw UsageError(tr("[train] {} warmup_stable_decay: how long it decays is not said",
                      options.given_as("lr_scheduler")),
                   tr("give --wsd_decay_steps, or lr_scheduler_kwargs with num_decay_steps"));
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
  if (options.has_value("wsd_decay_steps"))
    schedule.wsd_decay_steps = options.get_int("wsd_decay_steps");
  take_stable_decay(options, schedule);
  take_arguments(options, schedule);
  require_end(options);
  require_decay(options, schedule);
  if (options.has_value("lr_decay_iters"))
    schedule.decay_total_steps = options.get_int("lr_decay_iters");
  return schedule;
}

}  // namespace danlu::settings
