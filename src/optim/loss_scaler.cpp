#include "optim/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::optim {

LossScaler::LossScaler() = default;

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config) {
  config_.validate();
  dynamic_ = config_.fixed_scale == 0;
  scale_ = dynamic_ ? config_.initial_scale : config_.fixed_scale;
  hysteresis_left_ = config_.hysteresis;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    steps_since_overflow_ = 0;
    if (hysteresis_left_ > 1) {
      --hysteresis_left_;
    } else {
      scale_ = std::max(config_.min_scale, scale_ / 2);
    }
    return;
  }
  has_succeeded_ = true;
  if (++steps_since_overflow_ % config_.window != 0) return;
  hysteresis_left_ = config_.hysteresis;
  scale_ = std::min(std::max(config_.max_scale, config_.initial_scale), scale_ * 2);
}

bool LossScaler::search_lower() {
  if (scale_ <= config_.min_scale) return false;
  scale_ = std::max(config_.min_scale, scale_ / 2);
  return true;
}

Json LossScaler::state() const {
  return {{"scale", scale_},
          {"steps_since_overflow", steps_since_overflow_},
          {"hysteresis_left", hysteresis_left_},
          {"has_succeeded", has_succeeded_}};
}

void LossScaler::load_state(const Json& state) {
  const auto scale = json_get<double>(state, "scale");
  const auto steps = json_get<int64_t>(state, "steps_since_overflow");
  const auto left = json_get<int64_t>(state, "hysteresis_left");
  if (!scale || !steps || !left)
    throw DataError(
        tr("[loss_scale] saved state lacks scale, steps_since_overflow or hysteresis_left"));
  scale_ = *scale;
  steps_since_overflow_ = *steps;
  hysteresis_left_ = *left;
  // Versions that spent steps on the search kept no such key; their runs go on by their rules.
  has_succeeded_ = json_get<bool>(state, "has_succeeded").value_or(true);
}

}  // namespace danlu::optim
