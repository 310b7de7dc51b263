#include "settings/options/loss_scale.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/log.h"

namespace danlu::settings {

namespace {

std::optional<double> number_in(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= 0) || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

bool names_learnt_part(const Options& options) {
  return !number_in(options.get_string("loss_scale"));
}

void put_loss_scale(const Options& options, TrainConfig& config) {
  LossScaleConfig& scale = config.loss_scale;
  const std::string text = options.get_string("loss_scale");
  if (const auto number = number_in(text)) {
    scale.fixed_scale = *number;
  } else {
    config.data.learnt = text::trained_part_from_name(text, options.given_as("loss_scale"));
  }
  scale.initial_scale = options.get_float("initial_loss_scale");
  scale.window = options.get_int("loss_scale_window");
  scale.hysteresis = options.get_int("hysteresis");
  scale.min_scale = options.get_float("min_loss_scale");
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
