#include "settings/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::settings {
namespace {

double between(double from, double to, double fraction) { return from + (to - from) * fraction; }

double half_cosine(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }

/// Fraction of the way from the peak down to min_lr that is left at `progress` in [0, 1].
double remaining(Ramp ramp, double progress) {
  switch (ramp) {
    case Ramp::kCosine:
      return half_cosine(progress);
    case Ramp::kExponential:
      return 2.0 * std::pow(0.5, progress) - 1.0;
    case Ramp::kOneMinusSqrt:
      return 1.0 - std::sqrt(progress);
    case Ramp::kLinear:
    case Ramp::kLog:  // a shape of warm-ups only
      return 1.0 - progress;
  }
  throw InternalError("[schedule] an unknown ramp");
}

/// DeepSpeed never warms up in fewer than two steps: ln(1) would divide.
double warmup_steps_of(const ScheduleConfig& config) {
  const bool deepspeed = config.kind == ScheduleKind::kWarmupLr ||
                         config.kind == ScheduleKind::kWarmupDecayLr ||
                         config.kind == ScheduleKind::kWarmupCosineLr;
  return deepspeed ? std::max(2.0, config.warmup_steps) : config.warmup_steps;
}

double warmup_fraction(const ScheduleConfig& config, int64_t step) {
  const double steps = warmup_steps_of(config);
  if (config.warmup_ramp == Ramp::kLog)
    return std::log(static_cast<double>(step) + 1.0) / std::log(steps);
  return static_cast<double>(step) / steps;
}

/// What is left of the peak of kInverseSqrt.
double inverse_root(const ScheduleConfig& config, double step) {
  const bool is_megatrons = config.inverse_scale > 0;
  if (is_megatrons && step > static_cast<double>(config.total_steps)) return 0;
  if (config.warmup_steps > 0 && config.timescale == 0)
    return std::sqrt(config.warmup_steps / std::max(config.warmup_steps, step));
  if (is_megatrons) return std::sqrt(config.inverse_scale / std::max(config.inverse_scale, step));
  constexpr double kPublishedScale = 10000;
  const double scale = config.timescale > 0 ? config.timescale : kPublishedScale;
  return std::sqrt(scale / (step - config.warmup_steps + scale));
}

double decayed(const ScheduleConfig& config, int64_t step) {
  const double warmup_steps = warmup_steps_of(config);
  const double after_warmup = std::max(0.0, static_cast<double>(step) - warmup_steps);
  const double span = std::max(1.0, static_cast<double>(config.total_steps) - warmup_steps);
  const double progress = std::min(1.0, after_warmup / span);
  switch (config.kind) {
    case ScheduleKind::kConstant:
    case ScheduleKind::kWarmupLr:
      return config.lr;
    case ScheduleKind::kLinear:
      return between(config.min_lr, config.lr, 1.0 - progress);
    case ScheduleKind::kWarmupDecayLr: {
      // Counted from the end: a run that ends within its warm-up is at its lowest after it.
      const double left = static_cast<double>(config.total_steps - step) / span;
      return between(config.start_lr, config.lr, std::clamp(left, 0.0, 1.0));
    }
    case ScheduleKind::kWarmupCosineLr:
      // It is one step ahead of the others: the peak is never quite reached.
      return between(config.min_lr, config.lr,
                     half_cosine(std::min(1.0, (after_warmup + 1.0) / span)));
    case ScheduleKind::kCosine:
      return between(config.min_lr, config.lr, half_cosine(progress));
    case ScheduleKind::kCosineWithRestarts: {
      if (progress >= 1.0) return config.min_lr;
      const double cycle = progress * static_cast<double>(config.num_cycles);
      return between(config.min_lr, config.lr, half_cosine(cycle - std::floor(cycle)));
    }
    case ScheduleKind::kPolynomial:
      return between(config.min_lr, config.lr, std::pow(1.0 - progress, config.power));
    case ScheduleKind::kInverseSqrt:
      return std::max(config.min_lr, config.lr * inverse_root(config, static_cast<double>(step)));
    case ScheduleKind::kWarmupStableDecay: {
      const int64_t decay_begin = config.total_steps - config.decay_steps;
      if (step <= decay_begin || config.decay_steps == 0) return config.lr;
      const double part = std::min(
          1.0, static_cast<double>(step - decay_begin) / static_cast<double>(config.decay_steps));
      return between(config.min_lr, config.lr, remaining(config.decay_ramp, part));
    }
  }
  throw InternalError("[schedule] unknown kind");
}

struct ScheduleName {
  const char* name;
  ScheduleKind kind;
};

// The first name of a kind is the one we print.
constexpr ScheduleName kScheduleNames[] = {
    {"constant", ScheduleKind::kConstant},
    {"constant_with_warmup", ScheduleKind::kConstant},
    {"linear", ScheduleKind::kLinear},
    {"cosine", ScheduleKind::kCosine},
    {"cosine_with_min_lr", ScheduleKind::kCosine},
    {"cosine_with_restarts", ScheduleKind::kCosineWithRestarts},
    {"polynomial", ScheduleKind::kPolynomial},
    {"inverse_sqrt", ScheduleKind::kInverseSqrt},
    {"inverse-square-root", ScheduleKind::kInverseSqrt},
    {"wsd", ScheduleKind::kWarmupStableDecay},
    {"warmup_stable_decay", ScheduleKind::kWarmupStableDecay},
    {"WSD", ScheduleKind::kWarmupStableDecay},
    {"WarmupLR", ScheduleKind::kWarmupLr},
    {"WarmupDecayLR", ScheduleKind::kWarmupDecayLr},
    {"WarmupCosineLR", ScheduleKind::kWarmupCosineLr},
};

struct RampName {
  const char* name;
  Ramp ramp;
};
constexpr RampName kRampNames[] = {{"linear", Ramp::kLinear},
                                   {"log", Ramp::kLog},
                                   {"cosine", Ramp::kCosine},
                                   {"exponential", Ramp::kExponential},
                                   {"minus_sqrt", Ramp::kOneMinusSqrt}};

void require(bool holds, const char* field, double got, const char* rule) {
  if (!holds) throw UsageError(tr("[schedule] {} must be {}, got {}", field, rule, got));
}

template <typename Entry, size_t kCount>
[[noreturn]] void unknown_name(const char* what, const std::string& name,
                               const Entry (&table)[kCount]) {
  std::vector<std::string> names;
  for (const Entry& entry : table) names.push_back(entry.name);
  const auto near = nearest_name(name, names);
  throw UsageError(tr("[schedule] unknown {} '{}'; known: {}", what, name, fmt::join(names, ", ")),
                   near ? tr("did you mean '{}'?", *near) : std::string());
}

}  // namespace

void ScheduleConfig::validate() const {
  require(std::isfinite(lr) && lr >= 0, "learning_rate", lr, "a finite number ≥ 0");
  require(std::isfinite(min_lr) && min_lr >= 0, "min_lr", min_lr, "a finite number ≥ 0");
  require(min_lr <= lr, "min_lr", min_lr, "at most learning_rate");
  require(total_steps >= 1, "total steps", static_cast<double>(total_steps), "at least 1");
  require(std::isfinite(warmup_steps) && warmup_steps >= 0, "warmup_steps", warmup_steps,
          "at least 0");
  require(decay_steps >= 0 && static_cast<double>(decay_steps) + warmup_steps <=
                                  std::max(static_cast<double>(total_steps), warmup_steps),
          "decay_steps", static_cast<double>(decay_steps),
          "at least 0 and, with the warm-up, at most the total steps");
  require(num_cycles >= 1, "num_cycles", static_cast<double>(num_cycles), "at least 1");
  require(std::isfinite(power) && power > 0, "power", power, "positive");
}

double learning_rate_at(const ScheduleConfig& config, int64_t step) {
  if (static_cast<double>(step) < warmup_steps_of(config)) {
    const double fraction = warmup_fraction(config, step);
    return between(config.start_lr, config.lr, fraction);
  }
  return decayed(config, step);
}

ScheduleKind schedule_from_name(const std::string& name) {
  for (const auto& entry : kScheduleNames) {
    if (name == entry.name) return entry.kind;
  }
  unknown_name("learning-rate schedule", name, kScheduleNames);
}

std::string schedule_name(ScheduleKind kind) {
  for (const auto& entry : kScheduleNames) {
    if (entry.kind == kind) return entry.name;
  }
  throw InternalError("[schedule] unknown kind");
}

Ramp ramp_from_name(const std::string& name) {
  for (const auto& entry : kRampNames) {
    if (name == entry.name) return entry.ramp;
  }
  unknown_name("ramp", name, kRampNames);
}

std::string ramp_name(Ramp ramp) {
  for (const auto& entry : kRampNames) {
    if (entry.ramp == ramp) return entry.name;
  }
  throw InternalError("[schedule] unknown ramp");
}

}  // namespace danlu::settings
