#include "settings/options/loss_scale.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace danlu::settings {

namespace {

std::optional<double> number_in(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= 0) || !std::isfinite(number)) return std::nullopt;
  return number;
}

/// By LLaMA-Factory's switches, which are two parts of one choice; empty: neither is on.
std::string learnt_by_switch(const Options& options) {
  std::string learnt, flag;
  for (const auto& [name, part] :
       {std::pair{"train_on_prompt", "all"}, std::pair{"mask_history", "last_answer"}}) {
    if (!options.get_bool_or(name, false)) continue;
    const std::string given = options.given_as(name);
    const std::string other = !flag.empty() ? flag
                              : options.is_given("loss_scale") && names_learnt_part(options)
                                  ? options.given_as("loss_scale")
                                  : "";
    if (!other.empty()) {
      throw UsageError(tr("[train] {} and {} both say what is learnt", other, given),
                       tr("give one of them"));
    }
    learnt = part;
    flag = given;
  }
  return learnt;
}

}  // namespace

bool names_learnt_part(const Options& options) {
  return !number_in(options.get_string("loss_scale"));
}

text::TrainedPart learnt_from(const Options& options) {
  if (const std::string part = learnt_by_switch(options); !part.empty())
    return text::trained_part_from_name(part, part);
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
