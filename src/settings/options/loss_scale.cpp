#include "settings/options/loss_scale.h"

#include "base/log.h"

namespace danlu::settings {

LossScaleConfig loss_scale_from(const Options& options) {
  LossScaleConfig scale;
  scale.fixed_scale = options.get_float("loss_scale");
  scale.initial_scale = options.get_float("initial_loss_scale");
  scale.window = options.get_int("loss_scale_window");
  scale.hysteresis = options.get_int("hysteresis");
  scale.min_scale = options.get_float("min_loss_scale");
  return scale;
}

void report_loss_scale(const TrainConfig& config) {
  constexpr double kLikelyTooLarge = 16777216.0;  // 2^24
  if (config.precision != Precision::kF16) return;
  const LossScaleConfig& scale = config.loss_scale;
  if (scale.fixed_scale > kLikelyTooLarge) {
    log::warning(
        "{} {:g} is above 2^24, and fixed: gradients will hardly fit into fp16; 0 finds a "
        "scale that does",
        config.flag("loss_scale"), scale.fixed_scale);
  }
  if (scale.fixed_scale > 0 || scale.initial_scale <= kLikelyTooLarge) return;
  log::info(
      "the loss scale begins at {:g} ({}), above 2^24: until a step succeeds each overflow "
      "halves it and repeats the step",
      scale.initial_scale, config.flag("initial_loss_scale"));
}

}  // namespace danlu::settings
