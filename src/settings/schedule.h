// settings/schedule.h: the learning rate of every update, as a pure function of its number.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace danlu::settings {

enum class ScheduleKind {
  kConstant,            ///< lr, after the warm-up if there is one
  kLinear,              ///< to min_lr at total_steps
  kCosine,              ///< half a cosine to min_lr at total_steps
  kCosineWithRestarts,  ///< num_cycles half cosines, each starting again at lr
  kPolynomial,          ///< (1 - progress)^power to min_lr (the Trainer's default: 1e-7)
  kInverseSqrt,         ///< lr * sqrt(warmup / step), never below min_lr (inverse_scale)
  kWarmupStableDecay,   ///< constant, then decay_steps of decay at the end
  kWarmupLr,            ///< DeepSpeed's WarmupLR: warm-up, then constant
  kWarmupDecayLr,       ///< DeepSpeed's WarmupDecayLR: warm-up, then linear back to start_lr
  kWarmupCosineLr,      ///< DeepSpeed's WarmupCosineLR: warm-up, then half a cosine to min_lr
};

/// Shape of a warm-up (DeepSpeed's take either) and of the decay of kWarmupStableDecay.
enum class Ramp { kLinear, kLog, kCosine, kExponential, kOneMinusSqrt };

/// What is left of the peak where nothing says where kWarmupCosineLr ends.
inline constexpr double kCosineMinRatio = 1e-4;

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  double lr = 1e-4;         ///< peak
  double min_lr = 0.0;      ///< where decay ends
  double start_lr = 0.0;    ///< where warm-up starts, and kWarmupDecayLr ends
  double warmup_steps = 0;  ///< updates, whole but where Megatron counts; 0: none
  int64_t total_steps = 1;  ///< updates of the whole run
  int64_t decay_steps = 0;  ///< kWarmupStableDecay: updates of its last phase
  double power = 1.0;       ///< kPolynomial
  /// kInverseSqrt without a warm-up. 0: as Hugging Face's (timescale). Else
  /// Megatron's: lr * sqrt(inverse_scale / step), and min_lr after total_steps.
  double inverse_scale = 0;
  int64_t num_cycles = 1;            ///< kCosineWithRestarts
  Ramp warmup_ramp = Ramp::kLinear;  ///< kLinear or kLog (DeepSpeed's kinds only)
  Ramp decay_ramp = Ramp::kLinear;   ///< kWarmupStableDecay only
  /// kInverseSqrt of Hugging Face: updates after the warm-up over which the rate falls by sqrt(2).
  /// 0: as many as warm up, or 10,000.
  double timescale = 0;

  /// Errors: UsageError naming the field, its value and the rule.
  void validate() const;
};

/// Learning rate of update `step`, counted from 0, as Hugging Face counts: the first update of a
/// linear warm-up from 0 has rate 0; update warmup_steps has the peak.
/// Source: transformers' optimization module; DeepSpeed's WarmupLR, WarmupDecayLR and
/// WarmupCosineLR.
double learning_rate_at(const ScheduleConfig& config, int64_t step);

/// "linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts",
/// "cosine_with_min_lr", "polynomial", "inverse_sqrt" ("inverse-square-root"), "wsd"
/// ("warmup_stable_decay"), "WarmupLR", "WarmupDecayLR", "WarmupCosineLR". Errors: UsageError with
/// the nearest valid name.
ScheduleKind schedule_from_name(const std::string& name);
std::string schedule_name(ScheduleKind kind);
/// "linear", "log", "cosine", "exponential", "minus_sqrt". Errors: UsageError.
Ramp ramp_from_name(const std::string& name);
std::string ramp_name(Ramp ramp);

}  // namespace danlu::settings
