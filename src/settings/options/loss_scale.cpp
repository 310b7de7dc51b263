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

text::TrainedPart learnt_from(const Options& options) {
  if (!names_learnt_part(options)) return {};
  return text::trained_part_from_name(options.get_string("loss_scale"),
                                      options.given_as("loss_scale"));
}

LossScaleConfig loss_scale_from(const Options& options) {
  LossScaleConfig scale;
  if (const auto number = number_in(options.get_string("loss_scale"))) scale.fixed_scale = *number;
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
